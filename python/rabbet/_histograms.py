"""Histograms of calibration, and the ranges chosen from them. Counting in NumPy costs
about 6 ns per element of a batch, as much as the network itself; an entropy search
costs 5 ms per tensor."""

from __future__ import annotations

from typing import Any, Self

BINS = 2048
LEVELS = 128  # of absolute values that an INT8 can stand for
_CHUNK = 1 << 17  # elements whose intermediate arrays stay in the cache
_KIND = "rabbet histograms 1"


class Histogram:
    """Counts of a tensor's absolute values in BINS bins from 0 to `limit`.

    Zeros are not counted: every scale represents them exactly. A value beyond the
    limit doubles it and joins bins in pairs; so no value is read twice, and at
    least half of the bins are in use.
    """

    def __init__(self) -> None:
        import numpy as np

        self.counts = np.zeros(BINS, np.int64)
        self.limit = 0.0
        self.low, self.high = 0.0, 0.0
        self.is_finite, self.is_seen = True, False

    def add(self, values: Any) -> None:
        """Counts an array of floats."""
        self.is_seen = True
        flat = values.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            self._add(flat[start : start + _CHUNK])

    def _add(self, values: Any) -> None:
        import numpy as np

        if values.dtype != np.float32:
            values = values.astype(np.float32)
        low, high = float(values.min()), float(values.max())
        if not np.isfinite(low) or not np.isfinite(high):
            self.is_finite = False
            values = values[np.isfinite(values)]
            if values.size == 0:
                return
            low, high = float(values.min()), float(values.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        peak = max(-low, high)
        if peak == 0:
            return
        self._widen(peak)
        sizes = np.abs(values)
        places = (sizes * np.float32(BINS / self.limit)).astype(np.int32)
        np.minimum(places, BINS - 1, out=places)
        self.counts += np.bincount(places, minlength=BINS)
        self.counts[0] -= sizes.size - np.count_nonzero(sizes)

    def _widen(self, peak: float) -> None:
        if self.limit == 0:
            # BINS / limit must be finite in float32.
            self.limit = max(peak, 1e-30)
        while self.limit < peak:
            self.limit *= 2
            self.counts[: BINS // 2] = self.counts.reshape(-1, 2).sum(1)
            self.counts[BINS // 2 :] = 0

    # ---- Ranges: the largest absolute value that an INT8 stands for; 0: no element
    # was anything but 0.

    def extreme(self) -> float:
        """The largest absolute value."""
        return max(-self.low, self.high)

    def quantile(self, share: float, cutoff: float) -> float:
        """The value that this share of the values does not exceed, at most `cutoff`
        times the largest one."""
        import numpy as np

        total = int(self.counts.sum())
        if total == 0:
            return 0.0
        place = int(np.searchsorted(self.counts.cumsum(), share * total))
        edge = (min(place, BINS - 1) + 1) * self.limit / BINS
        return min(edge, cutoff * self.extreme())

    def entropy(self) -> float:
        """The range whose LEVELS levels lose the least information.

        For each number of bins, i, the values are clipped to them (p), and these bins
        are shared out among the levels, each level's values spread evenly over those
        of its bins that hold any (q): the least Kullback-Leibler divergence of q from
        p (S. Migacz, "8-bit inference with TensorRT", GTC 2017). Sums over bins are
        differences of running sums, so that all i are looked at in one go:

            n D(i) = sum of p ln p - sum over levels of P ln(Q / bins) + n ln(n' / n)

        with P and Q a level's values with and without the clipped ones, n and n' all
        values with and without these.
        """
        import numpy as np

        counts = self.counts.astype(np.float64)
        total = counts.sum()
        if total == 0:
            return 0.0

        def running(numbers: Any) -> Any:
            return np.concatenate(([0.0], np.cumsum(numbers)))

        def information(numbers: Any) -> Any:
            return numbers * np.log(np.maximum(numbers, 1))

        sums = running(counts)
        used = running(counts > 0)
        known = running(information(counts))
        ends = np.arange(LEVELS, BINS + 1)
        edges = ends[:, None] * np.arange(LEVELS + 1) // LEVELS
        q = np.diff(sums[edges], axis=1)
        bins = np.diff(used[edges], axis=1)
        clipped = total - sums[ends]
        last = counts[ends - 1]
        p_known = known[ends] - information(last) + information(last + clipped)
        p = q.copy()
        p[:, -1] += clipped
        bins[:, -1] += (last == 0) & (clipped > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.where(p > 0, p * np.log(q / bins), 0.0).sum(1)
            divergence = (p_known - spread) / total + np.log(sums[ends] / total)
        # A last level that holds only clipped values represents no value.
        divergence[~np.isfinite(divergence)] = np.inf
        best = int(ends[np.argmin(divergence)])
        return min(best * self.limit / BINS, self.extreme())

    def least_squares(self, levels: int) -> float:
        """The range whose levels, evenly spaced on both sides of 0, make the least sum of
        squared errors."""
        import numpy as np

        used = np.flatnonzero(self.counts)
        if used.size == 0:
            return 0.0
        values = ((used + 0.5) * (self.limit / BINS)).clip(max=self.extreme())
        shares = np.linspace(1.0, 0.05, 96)[:, None]
        steps = shares * (self.extreme() / levels)
        found = np.minimum(np.rint(values / steps), levels) * steps
        lost = np.square(found - values) @ self.counts[used].astype(np.float64)
        return float(shares[np.argmin(lost), 0] * self.extreme())

    # ---- Keeping

    def state(self) -> dict[str, Any]:
        """The state that from_state takes."""
        return {
            "limit": self.limit,
            "low": self.low,
            "high": self.high,
            "counts": self.counts.tolist(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The histogram that state() described."""
        import numpy as np

        self = cls()
        self.limit, self.low, self.high = (
            float(state[key]) for key in ("limit", "low", "high")
        )
        counts = np.array(state["counts"], np.int64)
        if counts.shape != (BINS,) or (counts < 0).any():
            raise ValueError(f"expected {BINS} counts of at least 0")
        self.counts = counts
        return self


def dump(histograms: dict[str, Histogram]) -> bytes:
    """Histograms as bytes."""
    import json

    tensors = {name: one.state() for name, one in histograms.items()}
    return json.dumps({"kind": _KIND, "tensors": tensors}).encode()


def load(data: bytes) -> dict[str, Histogram]:
    """The histograms that dump wrote; ValueError for anything else."""
    import json

    try:
        content = json.loads(data)
        if content["kind"] != _KIND:
            raise ValueError(f"their kind is {content['kind']!r}")
        return {
            str(name): Histogram.from_state(state)
            for name, state in content["tensors"].items()
        }
    except (
        TypeError,
        KeyError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ValueError(
            f"these bytes hold no histograms of a calibration ({error}); give none, and "
            "they are made anew"
        ) from None
