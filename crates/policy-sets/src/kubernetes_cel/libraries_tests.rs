use super::{
    super::tests::{all_fail, all_hold},
    *,
};

#[test]
fn a_version_has_three_numbers_and_identifiers() {
    for (text, numbers, before) in [
        ("1.2.3", [1, 2, 3], ""),
        ("0.0.0", [0, 0, 0], ""),
        ("10.20.30", [10, 20, 30], ""),
        ("18446744073709551615.0.0", [u64::MAX, 0, 0], ""),
        ("1.2.3+b.01-x", [1, 2, 3], ""),
        ("1.2.3-0", [1, 2, 3], "0"),
        ("1.2.3-rc.10+b", [1, 2, 3], "rc.10"),
        ("1.2.3-01a.-.a-b", [1, 2, 3], "01a.-.a-b"),
        ("1.2.3-18446744073709551615", [1, 2, 3], "18446744073709551615"),
    ] {
        let Version(read) = Version::parse(text).unwrap();
        assert_eq!([read.major, read.minor, read.patch], numbers, "{text}");
        assert_eq!((read.pre.as_str(), read.build.as_str()), (before, ""), "{text}");
    }
    for text in [
        "",
        "1",
        "1.2",
        "1.2.3.4",
        "1.2.",
        ".2.3",
        "1.2.x",
        "1.2.3x",
        "v1.2.3",
        "01.2.3",
        "1.00.3",
        "18446744073709551616.0.0",
        " 1.2.3",
        "1.2.3-",
        "1.2.3-a..b",
        "1.2.3-01",
        "1.2.3-18446744073709551616",
        "1.2.3-a_b",
        "1.2.3-é",
        "1.2.3+",
        "1.2.3+a..b",
        "1.2.3+a_b",
        "1.2.3+a+b",
    ] {
        assert_eq!(Version::parse(text), None, "{text}");
    }
}

#[test]
fn a_short_or_padded_version_is_read_loosely() {
    for (text, same) in [
        ("v1.2.3", "1.2.3"),
        ("1", "1.0.0"),
        ("v1.2", "1.2.0"),
        ("v1.02", "1.2.0"),
        ("01.00.007", "1.0.7"),
        ("1.2.03-rc.1+b", "1.2.3-rc.1+b"),
        ("1.2.0-rc", "1.2.0-rc"),
    ] {
        assert_eq!(Version::parse_loosely(text), Version::parse(same), "{text}");
        assert!(Version::parse(same).is_some(), "{same}");
    }
    for text in [
        "", "v", "vv1", "1..2", "1.", "1.2-rc", "1-rc", "1.2+b", "1+b", "1.2.3.4", "1.2.3-01", "1.x", "1.2.+",
    ] {
        assert_eq!(Version::parse_loosely(text), None, "{text}");
    }
}

#[test]
fn versions_have_an_order() {
    let ascending = [
        "0.9.9",
        "1.0.0-1",
        "1.0.0-2",
        "1.0.0-10",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0",
        "1.0.1-alpha",
        "1.0.1",
        "1.1.0",
        "2.0.0",
    ];
    let versions = ascending.map(|text| Version::parse(text).unwrap());
    for (at, one) in versions.iter().enumerate() {
        for (other_at, other) in versions.iter().enumerate() {
            let texts = (ascending[at], ascending[other_at]);
            assert_eq!(one.cmp(other), at.cmp(&other_at), "{} {}", texts.0, texts.1);
        }
    }
}

#[test]
fn a_policy_reads_and_compares_versions() {
    all_hold(&[
        "isSemver('1.2.3') && !isSemver('v1.2') && !isSemver('v1.2', false) && isSemver('v1.2', true)",
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
        "semver('v1.2', true) == semver('1.2.0') && semver('1.2.3', false) != semver('1.2.4')",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && !semver('1.2.3').isLessThan(semver('1.2.3'))",
        "semver('1.2.3').isGreaterThan(semver('1.2.3-rc')) && !semver('1.2.3').isGreaterThan(semver('1.2.3'))",
        "semver('1.2.3').compareTo(semver('1.2.3')) == 0 && semver('1.2.3').compareTo(semver('2.0.0')) == -1",
        "semver('1.2.3').compareTo(semver('1.2.2')) == 1",
    ]);
    all_fail(&[
        "isSemver(1)",
        "isSemver('1.2.3', 'x')",
        "semver('v1.2') == semver('1.2.0')",
        "semver('1.2.3', 1) == semver('1.2.3')",
        "quantity('1').major() == 1",
        "semver('9223372036854775808.0.0').major() > 0",
        "semver('1.2.3').isLessThan(quantity('1'))",
        "quantity('1').isGreaterThan(semver('1.2.3'))",
    ]);
}

#[test]
fn lists_have_edges_and_positions() {
    all_hold(&[
        "['a', 'a', 'b', 'a'].indexOf('a') == 0 && ['a', 'b', 'b'].indexOf('b') == 1 && [1].indexOf(2) == -1",
        "['a', 'b', 'a'].lastIndexOf('a') == 2 && ['b', 'a'].lastIndexOf('b') == 0 && [].lastIndexOf(1) == -1",
        "['a', 'b'].first().value() == 'a' && ['a', 'b'].last().value() == 'b' && ![].last().hasValue()",
        "[optional.none(), optional.of(1), optional.of(2)].unwrapOpt() == [1, 2] && optional.unwrap([]) == []",
    ]);
    all_fail(&[
        "[1].unwrapOpt() == [1]",
        "optional.unwrap([optional.of(1), 2]) == [1]",
    ]);
}
