#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn a_quantity_is_read_as_kubernetes_reads_it() {
    for (text, billionths) in [
        ("1", UNIT),
        ("+1", UNIT),
        ("-1", -UNIT),
        ("1.5", UNIT * 3 / 2),
        (".5", UNIT / 2),
        ("1.", UNIT),
        ("7n", 7),
        ("0.1n", 1),
        ("7u", 7_000),
        ("100m", UNIT / 10),
        ("2k", 2_000 * UNIT),
        ("2M", 2_000_000 * UNIT),
        ("2G", 2 * UNIT * UNIT),
        ("2T", 2_000 * UNIT * UNIT),
        ("2P", 2_000_000 * UNIT * UNIT),
        ("2E", 2 * UNIT * UNIT * UNIT),
        ("1.5Ki", 1536 * UNIT),
        ("1Mi", 1_048_576 * UNIT),
        ("1Gi", 1_073_741_824 * UNIT),
        ("1Ti", 1_099_511_627_776 * UNIT),
        ("1Pi", 1_125_899_906_842_624 * UNIT),
        ("1Ei", 1_152_921_504_606_846_976 * UNIT),
        ("1e3", 1_000 * UNIT),
        ("1E-3", UNIT / 1_000),
    ] {
        assert_eq!(
            parse_quantity(text).map(|read| read.value),
            Some(billionths),
            "{text}"
        );
    }
    for text in [
        "",
        "-",
        "--1",
        "+-1",
        ".",
        "1.2.3",
        "1x",
        "1 ",
        "Ki",
        "1e",
        "1234567890123456789",
    ] {
        assert!(parse_quantity(text).is_none(), "{text}");
    }
}

#[test]
fn quantities_are_equal_by_their_value_and_whole_by_the_way_they_are_written() {
    let read = |text| parse_quantity(text).unwrap();
    assert_eq!(read("1000m"), read("1"));
    assert_ne!(read("1001m"), read("1"));
    for text in [
        "1",
        "1.5k",
        "1.555k",
        "1e3",
        "1.5e1",
        "1Ki",
        "12345678901Ki",
        "12345678Mi",
        "12345Gi",
        "12Ti",
    ] {
        assert!(read(text).whole, "{text}");
    }
    for text in [
        "1000m",
        "1000000u",
        "1n",
        "1.5",
        "1.5555k",
        "1.5e0",
        "1.0Ki",
        "1.0Mi",
        "1.0Gi",
        "1.0Ti",
        "123456789012Ki",
        "123456789Mi",
        "123456Gi",
        "123Ti",
        "1Pi",
        "1Ei",
    ] {
        assert!(!read(text).whole, "{text}");
    }
}
