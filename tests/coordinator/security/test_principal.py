from __future__ import annotations

import pytest

from coordinator.security.principal import NoMatchingRuleError, PrincipalMapper, distinguished_name

# The rules and names of KIP-371.
RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=kafka-server1,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "User:kafka-server1"),
        ("CN=kafka1,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "User:kafka1@sme"),
        ("cn=Kafka1,ou=SME,dc=mycp,dc=com", "User:kafka1"),
        ("O=only", "User:O=only"),
    ],
)
def test_the_first_rule_that_fits_decides(name: str, principal: str) -> None:
    assert PrincipalMapper(RULES).principal_of(name) == principal


def test_upper_case_and_a_reference_to_no_group() -> None:
    assert PrincipalMapper("RULE:^CN=(.*)$/$1-$2-$12/U").principal_of("CN=ada") == "User:ADA-$2-ADA2"


def test_a_name_that_no_rule_fits_is_nobodys() -> None:
    with pytest.raises(NoMatchingRuleError, match="O=only"):
        PrincipalMapper("RULE:^CN=(.*)$/$1/").principal_of("O=only")


@pytest.mark.parametrize("text", ["RULE:x", "DEFAULT DEFAULT", "RULE:[/x/", "rule:a/b/", "RULE:a/b/X"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapper(text)


def test_names_are_written_as_java_writes_them() -> None:
    subject = (
        (("countryName", "US"),),
        (("organizationName", 'Acme, "Inc"'),),
        (("commonName", "ada"), ("userId", "7")),
        (("organizationalUnitName", "#1 "),),
    )
    assert distinguished_name(subject) == 'OU=\\#1\\ ,CN=ada+UID=7,O=Acme\\, \\"Inc\\",C=US'
