"""Who a client with a certificate is: its distinguished name, as ``ssl.principal.mapping.rules`` turns it (KIP-371).

1. A name is written as in RFC 2253, the way Java's ``X500Principal`` does: the last part first, commas between the parts.
2. Rules are tried in their order; the first whose pattern matches the whole name decides. ``DEFAULT`` takes the name as
   it is. A name that no rule matches is nobody's: its connection is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_REFERENCE = re.compile(r"\\(.)|\$(\d+)")
_SPECIAL = re.compile(r'([,+"\\<>;])')


class NoMatchingRuleError(ValueError):
    """No rule says who this is."""


def distinguished_name(subject: Sequence[Iterable[tuple[str, str]]]) -> str:
    """The name of a certificate's subject, in the form that :meth:`ssl.SSLSocket.getpeercert` gives."""
    parts = ("+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part) for part in subject)
    return ",".join(reversed(list(parts)))


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return text


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def name_of(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        text = self.pattern.sub(self._replaced, name)
        return {"L": text.lower, "U": text.upper}.get(self.case, lambda: text)()

    def _replaced(self, found: re.Match[str]) -> str:
        """The replacement for one match. ``$12`` is group 12, or group 1 and a 2 if there are not as many groups."""

        def part(reference: re.Match[str]) -> str:
            if reference[1] is not None:
                return reference[1]
            digits = reference[2]
            taken = len(digits)
            while taken > 1 and int(digits[:taken]) > found.re.groups:
                taken -= 1
            if int(digits[:taken]) > found.re.groups:
                return reference[0]
            return (found[int(digits[:taken])] or "") + digits[taken:]

        return _REFERENCE.sub(part, self.replacement)


class PrincipalMapper:
    """The rules of ``ssl.principal.mapping.rules``. Raises ValueError for what is no rule."""

    def __init__(self, text: str) -> None:
        self._rules = list(_parsed(text))

    def principal_of(self, name: str) -> str:
        """The principal of a distinguished name. Raises NoMatchingRuleError."""
        for rule in self._rules:
            found = rule.name_of(name)
            if found is not None:
                return f"User:{found}"
        raise NoMatchingRuleError(f"no rule of ssl.principal.mapping.rules applies to {name}")


def _parsed(text: str) -> Iterable[_Rule]:
    at = 0
    text = text.strip()
    while at < len(text):
        found = _RULE.match(text, at)
        rest = text[found.end() :] if found is not None else text[at:]
        if found is None or not re.match(r"\s*(,|$)", rest):
            raise ValueError(
                f"ssl.principal.mapping.rules: {text[at:]} is not a rule: expected DEFAULT or "
                "RULE:pattern/replacement/[LU]"
            )
        if found[1] is not None:
            yield _Rule(None, "", "")
        else:
            try:
                yield _Rule(re.compile(found[2]), found[3], found[4])
            except re.error as error:
                raise ValueError(f"ssl.principal.mapping.rules: {found[2]} is not a pattern: {error}") from None
        at = found.end() + len(rest) - len(rest.lstrip().removeprefix(",").lstrip())
