"""Modules of control_flow.py. They need torch when they are imported, and have
annotations and loops that torch.jit.script takes."""

# torch.jit.script reads the annotations: no `from __future__ import annotations`.
from typing import List, Tuple  # noqa: UP035

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pair = Tuple[Tensor, Tensor]  # noqa: UP006
Triple = Tuple[Tensor, Tensor, Tensor]  # noqa: UP006


class _Cell(nn.Module):
    """An LSTM whose cell state is normalized."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.ih = nn.Linear(inputs, 4 * size)
        self.hh = nn.Linear(size, 4 * size, bias=False)
        self.norm = nn.LayerNorm(size)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Pair:
        i, f, g, o = (self.ih(x) + self.hh(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(self.norm(c)), c


class NormalizedLSTM(nn.Module):
    """A recurrent network of a cell of its own, with a list of its states."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = _Cell(8, 16)
        self.out = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Pair:
        h = x.new_zeros(x.size(1), 16)
        c = x.new_zeros(x.size(1), 16)
        states: List[Tensor] = []  # noqa: UP006
        for t in range(x.size(0)):
            h, c = self.cell(x[t], h, c)
            states.append(h)
        return self.out(torch.stack(states)), h


class Tagger(nn.Module):
    """A bidirectional LSTM with a conditional random field, decoded by Viterbi."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 12)
        self.lstm = nn.LSTM(12, 10, bidirectional=True, batch_first=True)
        self.emission = nn.Linear(20, 6)
        self.transition = nn.Parameter(torch.randn(6, 6))
        self.start = nn.Parameter(torch.randn(6))
        self.end = nn.Parameter(torch.randn(6))

    def forward(self, ids: Tensor) -> Pair:
        emissions = 5 * self.emission(self.lstm(self.embedding(ids))[0])
        score = self.start + emissions[:, 0]
        history: List[Tensor] = []  # noqa: UP006
        for t in range(1, emissions.size(1)):
            total = score.unsqueeze(2) + self.transition + emissions[:, t].unsqueeze(1)
            score, index = total.max(1)
            history.append(index)
        score = score + self.end
        best = score.argmax(1)
        path: List[Tensor] = [best]  # noqa: UP006
        for k in range(len(history)):
            pointers = history[len(history) - 1 - k]
            best = pointers.gather(1, best.unsqueeze(1)).squeeze(1)
            path.append(best)
        return torch.stack(path, 1).flip(1), score


class Transducer(nn.Module):
    """Greedy decoding of a transducer: up to three tokens for each frame."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(8, 16, batch_first=True)
        self.embedding = nn.Embedding(12, 16)
        self.cell = _Cell(16, 16)
        self.joint = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 12))

    def forward(self, x: Tensor) -> Pair:
        frames = self.encoder(x)[0][0]
        h = x.new_zeros(1, 16)
        c = x.new_zeros(1, 16)
        token = torch.full((1,), 11, dtype=torch.int64)
        h, c = self.cell(self.embedding(token), h, c)
        tokens: List[Tensor] = [token]  # noqa: UP006
        t = 0
        n = 0
        while t < frames.size(0):
            scores = self.joint(torch.cat([frames[t : t + 1], h], 1))
            token = scores.argmax(1)
            if bool((token == 11).all()) or n >= 3:
                t += 1
                n = 0
            else:
                tokens.append(token)
                h, c = self.cell(self.embedding(token), h, c)
                n += 1
        return torch.cat(tokens), h


class _Block(nn.Module):
    """Attention to itself, and of a decoder to a memory, with a feed-forward network."""

    def __init__(self, size: int, decodes: bool) -> None:
        super().__init__()
        self.size, self.decodes = size, decodes
        self.norm1 = nn.LayerNorm(size)
        self.norm2 = nn.LayerNorm(size)
        self.norm3 = nn.LayerNorm(size)
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)
        self.q = nn.Linear(size, size)
        self.kv = nn.Linear(size, 2 * size)
        self.cross_out = nn.Linear(size, size)
        self.up = nn.Linear(size, 2 * size)
        self.down = nn.Linear(2 * size, size)

    def heads(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), x.size(1), 4, self.size // 4).transpose(1, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        q, k, v = self.heads(q), self.heads(k), self.heads(v)
        scores = q @ k.transpose(2, 3) / (self.size // 4) ** 0.5
        if causal:
            n = scores.size(3)
            mask = torch.ones(n, n, dtype=q.dtype).triu(1) * -1e4
            scores = scores + mask
        mixed = torch.softmax(scores, -1) @ v
        return mixed.transpose(1, 2).reshape(mixed.size(0), -1, self.size)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out(self.attend(q, k, v, self.decodes))
        if self.decodes:
            k, v = self.kv(memory).chunk(2, -1)
            x = x + self.cross_out(self.attend(self.q(self.norm2(x)), k, v, False))
        return x + self.down(F.gelu(self.up(self.norm3(x))))


class Transcriber(nn.Module):
    """An encoder, and a decoder that runs over all tokens so far until all sequences end
    or the limit is reached."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(8, 32, 3, padding=1)
        self.conv2 = nn.Conv1d(32, 32, 3, stride=2, padding=1)
        self.encoder = _Block(32, False)
        self.decoder = _Block(32, True)
        self.embedding = nn.Embedding(20, 32)
        self.places = nn.Parameter(torch.randn(64, 32))
        self.norm = nn.LayerNorm(32)

    def forward(self, mel: Tensor, limit: Tensor) -> Pair:
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)
        memory = self.encoder(x + self.places[: x.size(1)], x)
        tokens = torch.ones(mel.size(0), 1, dtype=torch.int64)
        scores = mel.new_zeros(mel.size(0), 20)
        done = False
        i = 0
        most = int(limit.item()) + 1
        while i < most and not done:
            y = self.embedding(tokens) + self.places[: tokens.size(1)]
            y = self.norm(self.decoder(y, memory))
            scores = y[:, -1] @ self.embedding.weight.t()
            best = scores.argmax(1, keepdim=True)
            tokens = torch.cat([tokens, best], 1)
            done = bool((best == 7).all().item())
            i += 1
        return tokens, scores


class VoiceActivity(nn.Module):
    """Speech in each chunk of a recording, with a front end for each of two rates."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv1d(1, 18, 32, stride=16)
        self.narrow = nn.Conv1d(1, 18, 16, stride=8)
        self.conv = nn.Conv1d(9, 16, 3, padding=1)
        self.cell = _Cell(16, 16)
        self.out = nn.Linear(16, 1)

    def chunk(self, x: Tensor, wide: bool, h: Tensor, c: Tensor) -> Triple:
        x = x.unsqueeze(1)
        spectrum = self.wide(x) if wide else self.narrow(x)
        real, imaginary = spectrum.chunk(2, 1)
        power = torch.sqrt(real * real + imaginary * imaginary + 1e-3)
        h, c = self.cell(torch.relu(self.conv(power)).mean(2), h, c)
        return torch.sigmoid(self.out(h)), h, c

    def forward(self, audio: Tensor, wide: Tensor, h: Tensor, c: Tensor) -> Triple:
        is_wide = bool(wide.item() == 1)
        size = 256 if is_wide else 128
        found: List[Tensor] = []  # noqa: UP006
        for i in range(audio.size(1) // size):
            part = audio[:, i * size : (i + 1) * size]
            p, h, c = self.chunk(part, is_wide, h, c)
            found.append(p)
        return torch.cat(found, 1), h, c


class Detector(nn.Module):
    """The best places of each image, as many as there are, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, stride=4, padding=1)

    def forward(self, images: Tensor) -> Pair:
        maps = self.conv(images)
        boxes: List[Tensor] = []  # noqa: UP006
        for i in range(images.size(0)):
            flat = maps[i].reshape(5, -1).t()
            kept = flat[flat[:, 4] > 0]
            order = kept[:, 4].argsort(descending=True)
            boxes.append(kept[order[: min(7, int(order.size(0)))]])
        return torch.cat(boxes), maps


class Equilibrium(nn.Module):
    """Repeats a layer until its result settles, as implicit layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, 12)
        self.outer = nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.zeros_like(x)
        n = 0
        gap = x.new_ones(1)
        while n < 50 and bool((gap > 1e-2).all()):
            y = torch.tanh(0.2 * self.inner(z) + self.outer(x))
            gap = (y - z).abs().max().reshape(1)
            z = y
            n += 1
        return z


class _Cached(nn.Module):
    """A decoder's block for one token, with the keys and values of those before."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.norm1 = nn.LayerNorm(size)
        self.norm2 = nn.LayerNorm(size)
        self.norm3 = nn.LayerNorm(size)
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)
        self.q = nn.Linear(size, size)
        self.kv = nn.Linear(size, 2 * size)
        self.cross_out = nn.Linear(size, size)
        self.up = nn.Linear(size, 2 * size)
        self.down = nn.Linear(2 * size, size)

    def heads(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), x.size(1), 4, self.size // 4).transpose(1, 2)

    def memory(self, x: Tensor) -> Pair:
        k, v = self.kv(x).chunk(2, -1)
        return self.heads(k), self.heads(v)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(self.heads(q), k, v)
        return mixed.transpose(1, 2).reshape(q.size(0), -1, self.size)

    def forward(
        self, x: Tensor, k: Tensor, v: Tensor, memory_k: Tensor, memory_v: Tensor
    ) -> Triple:
        q, new_k, new_v = self.qkv(self.norm1(x)).chunk(3, -1)
        k = torch.cat([k, self.heads(new_k)], 2)
        v = torch.cat([v, self.heads(new_v)], 2)
        x = x + self.out(self.attend(q, k, v))
        x = x + self.cross_out(self.attend(self.q(self.norm2(x)), memory_k, memory_v))
        return x + self.down(F.gelu(self.up(self.norm3(x)))), k, v


class CachedTranscriber(nn.Module):
    """An encoder, and a decoder that runs over one token a step: keys and values of its
    two blocks grow, those of the encoder stay."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(8, 32, 3, padding=1)
        self.conv2 = nn.Conv1d(32, 32, 3, stride=2, padding=1)
        self.encoder = _Block(32, False)
        self.first = _Cached(32)
        self.second = _Cached(32)
        self.embedding = nn.Embedding(20, 32)
        self.places = nn.Parameter(torch.randn(64, 32))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 20)

    def forward(self, mel: Tensor, limit: Tensor) -> Triple:
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)
        x = self.encoder(x + self.places[: x.size(1)], x)
        memory_k1, memory_v1 = self.first.memory(x)
        memory_k2, memory_v2 = self.second.memory(x)
        k1 = mel.new_zeros(mel.size(0), 4, 0, 8)
        v1, k2, v2 = k1, k1, k1
        token = torch.ones(mel.size(0), 1, dtype=torch.int64)
        ended = torch.zeros(mel.size(0), 1, dtype=torch.bool)
        tokens = token
        score = mel.new_zeros(mel.size(0), 1)
        i = 0
        most = int(limit.item()) + 1
        while i < most and not bool(ended.all().item()):
            y = self.embedding(token) + self.places[i : i + 1]
            y, k1, v1 = self.first(y, k1, v1, memory_k1, memory_v1)
            y, k2, v2 = self.second(y, k2, v2, memory_k2, memory_v2)
            logits = self.head(self.norm(y)[:, -1])
            best, token = torch.log_softmax(logits, -1).max(1, keepdim=True)
            token = token.masked_fill(ended, 7)
            score = score + best.masked_fill(ended, 0.0)
            ended = ended | (token == 7)
            tokens = torch.cat([tokens, token], 1)
            i += 1
        return tokens, score, k2


class _Speech(nn.Module):
    """A detector of speech for one rate: a spectrum, four convolutions, an LSTM."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.pad = window // 4
        self.half = window // 2 + 1
        self.basis = nn.Conv1d(1, window + 2, window, stride=window // 2, bias=False)
        self.conv1 = nn.Conv1d(self.half, 24, 3, padding=1)
        self.conv2 = nn.Conv1d(24, 16, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(16, 16, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(16, 24, 3, padding=1)
        self.lstm = nn.LSTM(24, 24, batch_first=True)
        self.out = nn.Conv1d(24, 1, 1)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Triple:
        x = F.pad(x.unsqueeze(1), [0, self.pad], mode="reflect")
        spectrum = self.basis(x)
        real, imaginary = spectrum[:, : self.half], spectrum[:, self.half :]
        x = torch.sqrt(real**2 + imaginary**2 + 1e-4)
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        x = torch.relu(self.conv4(torch.relu(self.conv3(x))))
        x, state = self.lstm(x.transpose(1, 2), (h, c))
        x = torch.sigmoid(self.out(torch.relu(x).transpose(1, 2)))
        return x.mean(2), state[0], state[1]


class SpeechOfTwoRates(nn.Module):
    """One chunk of a recording with the end of the one before; a network for each of two
    rates, of which the rate chooses one. The state is one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = _Speech(64)
        self.narrow = _Speech(32)

    def forward(
        self, audio: Tensor, context: Tensor, state: Tensor, rate: Tensor
    ) -> Triple:
        x = torch.cat([context, audio], 1)
        h, c = state[:1], state[1:]
        if bool(rate.item() == 1):
            p, h, c = self.wide(x, h, c)
        else:
            p, h, c = self.narrow(x[:, ::2], h, c)
        return p, torch.cat([h, c]), audio[:, -32:]
