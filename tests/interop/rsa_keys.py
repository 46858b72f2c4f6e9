"""A pair of RSA keys as files, made from a seed: enough for a test, and for nothing else."""

import random
from base64 import encodebytes
from pathlib import Path

_RSA = bytes.fromhex("300d06092a864886f70d0101010500")
"""The algorithm's name, as public keys carry it."""


def write_key_pair(folder: Path, bits: int = 1024) -> tuple[Path, Path]:
    """Write a public and a private key; return where they are."""
    chance = random.Random(bits)
    exponent = 65_537
    first, second = (_prime(chance, bits // 2, exponent) for _ in range(2))
    modulus, order = first * second, (first - 1) * (second - 1)
    secret = pow(exponent, -1, order)
    public = folder / "public.pem"
    private = folder / "private.pem"
    numbers = _sequence(_number(modulus), _number(exponent))
    body = _tagged(0x30, _RSA + _tagged(0x03, b"\0" + numbers))
    public.write_text(_pem("PUBLIC KEY", body))
    parts = (0, modulus, exponent, secret, first, second)
    parts += (secret % (first - 1), secret % (second - 1), pow(second, -1, first))
    private.write_text(_pem("RSA PRIVATE KEY", _sequence(*map(_number, parts))))
    return public, private


def _prime(chance: random.Random, bits: int, exponent: int) -> int:
    while True:
        number = chance.getrandbits(bits) | 3 << (bits - 2) | 1
        if number % exponent != 1 and _is_prime(chance, number):
            return number


def _is_prime(chance: random.Random, number: int) -> bool:
    if any(number % small == 0 for small in (3, 5, 7, 11, 13, 17, 19, 23, 29, 31)):
        return False
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    for _ in range(20):
        power = pow(chance.randrange(2, number - 1), (number - 1) >> twos, number)
        seen = [power]
        for _ in range(twos - 1):
            seen.append(seen[-1] * seen[-1] % number)
        if seen[0] != 1 and number - 1 not in seen:
            return False
    return True


def _tagged(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 128:
        return bytes((tag, size)) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body


def _number(number: int) -> bytes:
    return _tagged(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _sequence(*parts: bytes) -> bytes:
    return _tagged(0x30, b"".join(parts))


def _pem(kind: str, body: bytes) -> str:
    return f"-----BEGIN {kind}-----\n{encodebytes(body).decode()}-----END {kind}-----\n"
