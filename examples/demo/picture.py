"""A picture to pad, and PNG files to look at."""

import struct
import zlib
from pathlib import Path

import numpy as np


def _ridge(x: np.ndarray, level: float, waves: list[tuple[float, float, float]]) -> np.ndarray:
    """The height of a chain of mountains above each column; no two sides are alike."""
    return level + sum(size * np.sin(count * x + phase) for size, count, phase in waves)


def landscape(height: int, width: int) -> np.ndarray:
    """A (3, height, width) float32 picture in [0, 1] without symmetry.

    An evening at a lake: the sun near one corner, three chains of mountains, water that
    mirrors the sky. Content that leaves the picture on one side visibly enters on the
    other.
    """
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    y, x = y / height, x / width
    colour = np.array
    top, low = colour([0.16, 0.22, 0.48]), colour([1.0, 0.62, 0.36])
    shore = 0.72

    def sky(at: np.ndarray) -> np.ndarray:
        share = (at / shore).clip(0, 1) ** 1.3
        return top[:, None, None] * (1 - share) + low[:, None, None] * share

    distance = np.hypot((x - 0.8) * width / height, y - 0.3)
    glow = np.exp(-((distance / 0.25) ** 2)) * 0.6 + (distance < 0.075)
    sun = colour([1.0, 0.87, 0.55])[:, None, None]
    picture = sky(y) * (1 - glow.clip(0, 1)) + sun * glow.clip(0, 1)
    for level, waves, shade in (
        (0.47, [(0.06, 7, 0.5), (0.02, 23, 1), (0.008, 61, 2)], [0.55, 0.40, 0.50]),
        (0.57, [(0.05, 9, 2.2), (0.02, 31, 0.3), (0.006, 83, 1)], [0.36, 0.27, 0.42]),
        (0.67, [(0.04, 5, 4.1), (0.015, 19, 2), (0.006, 97, 0.4)], [0.17, 0.15, 0.27]),
    ):
        mountains = y > _ridge(x, level, waves)
        picture = np.where(mountains, colour(shade)[:, None, None], picture)
    ripples = 0.04 * np.sin(160 * y**2) * (y - shore)
    mirrored = (2 * shore - y + ripples).clip(0, 1)
    path = np.exp(-(((x - 0.8 + ripples) / 0.07) ** 2)) * (0.5 + 0.5 * np.sin(300 * y**2))
    water = 0.7 * sky(mirrored) + 0.25 * path * sun
    return np.where(y > shore, water, picture).astype(np.float32)


def frame(picture: np.ndarray, pad: int) -> np.ndarray:
    """A copy of a padded picture with the border of the original drawn in."""
    framed = picture.copy()
    framed[:, pad:-pad, pad:-pad] = 1
    framed[:, pad + 1 : -pad - 1, pad + 1 : -pad - 1] = picture[
        :, pad + 1 : -pad - 1, pad + 1 : -pad - 1
    ]
    # The padding is a little darker.
    inside = np.zeros(picture.shape[1:], bool)
    inside[pad:-pad, pad:-pad] = True
    return np.where(inside, framed, 0.75 * framed)


def beside(left: np.ndarray, right: np.ndarray, margin: int = 16) -> np.ndarray:
    """Two pictures on a white sheet, the smaller in the middle of its side."""
    height = max(left.shape[1], right.shape[1])
    width = left.shape[2] + right.shape[2]
    sheet = np.ones((3, height + 2 * margin, width + 3 * margin), np.float32)
    column = margin
    for picture in (left, right):
        row = margin + (height - picture.shape[1]) // 2
        sheet[:, row : row + picture.shape[1], column : column + picture.shape[2]] = picture
        column += picture.shape[2] + margin
    return sheet


def write_png(path: Path, picture: np.ndarray, scale: int = 2) -> None:
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
