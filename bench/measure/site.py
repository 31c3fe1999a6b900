"""The files that are served: the same on every host, made in bench/out unless they are there.

Nothing here can be guessed or squeezed: images and the large file are random bytes, and no piece of
them is like another, so that whoever compares what came with what is on disk knows where it is
from. The page is prose of made-up words, which gzip brings to about a third.
"""

import gzip
import random

from .bench import OUT_DIR

ROOT = OUT_DIR / "site"

SMALL_BYTES = 1_000
PAGE_BYTES = 15_000
IMAGE_BYTES = 4_000
IMAGES = 10_000
IMAGE_FORMAT = "/images/%05d.png"
LARGE_BYTES = 100_000_000

WORDS = 400
SEED = 20240602


def small() -> str:
    """Each of these makes sure that the file is there and returns its path."""
    return made("/1k.bin", random.Random(SEED).randbytes(SMALL_BYTES))


def page() -> str:
    """With its gzip beside it, made as well as gzip can."""
    path = made("/page.html", prose())
    made(f"{path}.gz", gzip.compress(prose(), 9, mtime=0))
    return path


def page_alone() -> str:
    """The same page in a directory without a gzip of it."""
    return made("/alone/page.html", prose())


def images() -> list[str]:
    draw = random.Random(SEED)
    return [made(IMAGE_FORMAT % n, draw.randbytes(IMAGE_BYTES)) for n in range(IMAGES)]


def large() -> str:
    return made("/100m.bin", random.Random(SEED).randbytes(LARGE_BYTES))


def content(path: str) -> bytes:
    return (ROOT / path[1:]).read_bytes()


def made(path: str, wanted: bytes) -> str:
    """At no time is there half a file, whatever ends the driver."""
    file = ROOT / path[1:]
    if not file.exists() or file.read_bytes() != wanted:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(file.name + ".tmp")
        draft.write_bytes(wanted)
        draft.replace(file)
    return path


def prose() -> bytes:
    """Paragraphs in which a word is the rarer the later it was made up, as in any language."""
    draw = random.Random(SEED)
    syllables = [a + b for a in "bdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "ei", "ou")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(WORDS)]
    weights = [1 / rank for rank in range(1, WORDS + 1)]
    text = "<!doctype html>\n<title>prose</title>\n"
    while len(text) < PAGE_BYTES:
        text += f"<p>{' '.join(draw.choices(words, weights, k=80)).capitalize()}.</p>\n"
    return text[:PAGE_BYTES].encode()
