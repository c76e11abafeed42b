"""A picture to pad, and PNG files to look at."""

import struct
import zlib
from pathlib import Path

import numpy as np


def landscape(height: int, width: int) -> np.ndarray:
    """A (3, height, width) float32 picture in [0, 1] without symmetry.

    A sky, a sun near one corner, hills and a road: what leaves it on one side
    is seen to come in on the other.
    """
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    y, x = y / height, x / width
    sky = np.stack([0.35 + 0.4 * y, 0.6 + 0.3 * y, 0.95 - 0.1 * y])
    hills = y > 0.62 + 0.1 * np.sin(7 * x) + 0.05 * np.sin(17 * x + 1)
    ground = np.stack([0.15 + 0.3 * x, 0.45 + 0.15 * x, 0.2 + 0 * x])
    picture = np.where(hills, ground, sky)
    sun = np.hypot((x - 0.86) * width / height, y - 0.16) < 0.1
    picture[:, sun] = np.array([[1.0], [0.9], [0.3]])
    road = hills & (abs(x - 0.3 - 0.25 * (y - 0.6)) < 0.02 + 0.1 * (y - 0.6))
    picture[:, road] = 0.25
    return picture.astype(np.float32)


def frame(picture: np.ndarray, pad: int) -> np.ndarray:
    """A copy of a padded picture with the border of the original drawn in."""
    framed = picture.copy()
    top, left = pad - 1, pad - 1
    bottom, right = picture.shape[1] - pad, picture.shape[2] - pad
    red = np.array([[1.0], [0.1], [0.1]])
    framed[:, [top, bottom], left : right + 1] = red[:, :, None]
    framed[:, top : bottom + 1, [left, right]] = red[:, :, None]
    return framed


def write_png(path: Path, picture: np.ndarray, scale: int = 3) -> None:
    """Writes a (3, height, width) picture in [0, 1], each pixel `scale` wide."""
    pixels = (picture.clip(0, 1) * 255 + 0.5).astype(np.uint8).transpose(1, 2, 0)
    pixels = pixels.repeat(scale, axis=0).repeat(scale, axis=1)
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )
