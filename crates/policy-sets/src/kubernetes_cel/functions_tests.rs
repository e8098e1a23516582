use super::{
    super::tests::{all_fail, all_hold},
    *,
};

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

#[test]
fn a_policy_computes_with_quantities() {
    all_hold(&[
        "isQuantity('1Gi') && !isQuantity('1x')",
        "quantity('2').add(3) == quantity('5') && quantity('2').sub(3) == quantity('-1')",
        "quantity('1').add(quantity('500m')) == quantity('1500m') && quantity('1Ki').sub(quantity('24')) == quantity('1k')",
        "quantity('-1m').sign() == -1 && quantity('0').sign() == 0 && quantity('1Gi').sign() == 1",
        "quantity('7').isInteger() && quantity('9E').isInteger() && !quantity('10E').isInteger()",
        "!quantity('7000m').isInteger() && !quantity('1.5').isInteger()",
        "quantity('7').asInteger() == 7 && quantity('2k').asInteger() == 2000 && quantity('-3').asInteger() == -3",
        "quantity('1500m').asApproximateFloat() == 1.5 && quantity('2k').asApproximateFloat() == 2000.0",
        "quantity('1').add(quantity('1')).isInteger() && quantity('2').sub(quantity('1')).isInteger()",
        "!quantity('1').add(quantity('1000m')).isInteger() && !quantity('1000m').add(quantity('1')).isInteger()",
        "!quantity('2').sub(quantity('1000m')).isInteger() && !quantity('2000m').sub(quantity('1')).isInteger()",
        "quantity('2').isGreaterThan(quantity('1')) && !quantity('1').isGreaterThan(quantity('1000m'))",
        "quantity('1').isLessThan(quantity('2')) && !quantity('1').isLessThan(quantity('1000m'))",
        "!quantity('1').isGreaterThan(quantity('2')) && !quantity('2').isLessThan(quantity('1'))",
        "quantity('1').compareTo(quantity('2')) == -1 && quantity('2').compareTo(quantity('1')) == 1",
        "quantity('1000m').compareTo(quantity('1')) == 0",
        "quantity('1000m') == quantity('1') && quantity('1001m') != quantity('1')",
    ]);
    all_fail(&[
        "isQuantity(1)",
        "quantity('x').sign() == 0",
        "quantity('7000m').asInteger() == 7",
        "quantity('10E').asInteger() > 0",
        "quantity('1').add('1') == quantity('2')",
        "semver('1.2.3').add(quantity('1')).sign() == 1",
        "quantity('1').compareTo('1') == 0",
    ]);
}

#[test]
fn a_policy_looks_for_the_order_of_lists() {
    all_hold(&[
        "[2, 1, 3].min() == 1 && [2, 3, 1].max() == 3 && ['b'].min() == 'b' && ['a', 'c', 'b'].max() == 'c'",
        "[1, 1, 2].isSorted() && ![1, 3, 2].isSorted() && ![2, 1].isSorted() && [].isSorted() && [1].isSorted()",
        "[1, 2, 3].sum() == 6 && [1.5].sum() == 1.5 && [duration('1s'), duration('2s')].sum() == duration('3s')",
        "[].sum() == 0",
    ]);
    all_fail(&[
        "[].min() == 1",
        "[].max() == 1",
        "['a', 'b'].sum() == 'ab'",
        "[[1], [2]].sum() == [1, 2]",
        "[{}, {}].isSorted()",
    ]);
}

#[test]
fn an_expression_calls_known_functions_only() {
    let env = environment();
    for known in [
        "a.size() > 0",
        "strings.quote('a') == a",
        "-a + 1 > a[0]",
        "format.uuid() == a",
    ] {
        assert!(compile(known, &env).is_ok(), "{known}");
    }
    for unknown in ["magic(a)", "a.magic()", "magic.size2(a)", "a.check('x')"] {
        assert!(compile(unknown, &env).is_err(), "{unknown}");
    }
    let asks = "authorizer.group('').resource('pods').check('create').allowed()";
    assert!(compile(asks, &env).is_ok());
    assert!(compile("authorizer.magic()", &env).is_err());
}
