//! The libraries of CEL. What the API server says about them is in `tests/it/kubernetes/admission_policies.rs`.
use std::sync::Arc;

use cel::Context;
use serde_json::{Value, json};

use super::functions;
use konverge_cel::{cel_expression::CelError, cel_value::to_cel};

pub(super) fn holds(expression: &str, object: &Value) -> Result<bool, CelError> {
    let env = functions::environment();
    let compiled = functions::compile(expression, &env).unwrap_or_else(|why| panic!("{expression}: {why}"));
    let mut root = Context::with_env(Arc::new(env));
    functions::add(&mut root);
    let outer: &Context<'_, '_> = &root;
    let mut context = outer.new_inner_scope();
    context.add_variable_as_val("object", to_cel(object));
    compiled.holds(&context)
}

/// Each expression is true.
pub(super) fn all_hold(expressions: &[&str]) {
    for expression in expressions {
        assert_eq!(holds(expression, &Value::Null), Ok(true), "{expression}");
    }
}

/// Each expression has no value.
pub(super) fn all_fail(expressions: &[&str]) {
    for expression in expressions {
        assert!(holds(expression, &Value::Null).is_err(), "{expression}");
    }
}

#[test]
fn values_of_the_libraries_have_the_types_of_kubernetes() {
    for (expression, type_of) in [
        ("ip('::1')", "net.IP"),
        ("cidr('::/0')", "net.CIDR"),
        ("url('/a')", "kubernetes.URL"),
        ("semver('1.2.3')", "kubernetes.Semver"),
        ("quantity('1')", "kubernetes.Quantity"),
        ("format.uuid()", "kubernetes.NamedFormat"),
    ] {
        let message = CelError::Other(format!("it returns {type_of}, not true or false"));
        assert_eq!(holds(expression, &Value::Null), Err(message), "{expression}");
    }
}

#[test]
fn the_libraries_of_kubernetes_are_there() {
    let object = json!({"l": ["a", "b", "b"], "m": {"x": 1, "y": 2}, "t": "Ab", "n": 3});
    for expression in [
        // Loops with two variables.
        "object.l.all(i, v, i < 3 && v != 'c') && !object.l.all(i, v, v == 'a')",
        "object.m.all(k, v, k == 'x' ? v == 1 : v == 2)",
        "object.l.exists(i, v, i == 2 && v == 'b') && !object.m.exists(k, v, k == 'x' && v == 2)",
        "object.l.existsOne(i, v, v == 'a') && !object.l.exists_one(i, v, v == 'b')",
        "object.l.transformList(i, v, v + string(i)) == ['a0', 'b1', 'b2']",
        "object.l.transformList(i, v, i > 0, v) == ['b', 'b']",
        "object.m.transformList(k, v, k + string(v)) == ['x1', 'y2']",
        "object.m.transformMap(k, v, v * 10) == {'x': 10, 'y': 20}",
        "object.m.transformMap(k, v, v > 1, k) == {'y': 'y'} && object.l.transformMap(i, v, v)[1] == 'b'",
        "object.m.transformMapEntry(k, v, {string(v): k}) == {'1': 'x', '2': 'y'}",
        "{'h': ['hi', 'ho'], 'j': ['jo']}.all(k, all, all.all(i, v, v.startsWith(k) && i < 2))",
        "object.l.all(i, v, object.l.exists(j, w, j == i && w == v))",
        "[].all(i, v, false) && !{}.exists(k, v, true)",
        // As with one variable, one side decides over an error of the other.
        "object.l.exists(i, v, v == 'b' || 1 / i > 0) && !object.l.all(i, v, v == 'a' && 1 / i > 0)",
        // Formats.
        "!format.dns1123Label().validate('ab').hasValue() && format.dns1123Label().validate('A').hasValue()",
        "format.named('uuid').value().validate('x').value().size() == 1 && !format.named('other').hasValue()",
        "format.named('date').hasValue() && !format.date().validate('2024-02-29').hasValue()",
        // Addresses.
        "ip.isCanonical('::1') && !ip.isCanonical('0::1') && string(ip('0::1')) == '::1'",
        "cidr('10.1.2.3/8').ip() == ip('10.1.2.3') && string(cidr('10.1.2.3/8').masked()) == '10.0.0.0/8'",
        "!isIP('::ffff:10.0.0.1') && !isCIDR('::ffff:10.0.0.0/104') && ip('10.0.0.1').family() == 4",
        // Lists and sets.
        "[1, 2].sum() == 3 && [1.5, 2.0].sum() == 3.5 && [].sum() == 0 && ['b', 'a'].min() == 'a' && [1, 3].max() == 3",
        "[1, 2, 2].isSorted() && !['b', 'a'].isSorted() && sets.contains(object.l, ['a']) && !sets.intersects([1], [2])",
        "sets.equivalent(object.l, ['b', 'a']) && object.l.indexOf('b') == 1 && object.l.lastIndexOf('b') == 2",
        // Time.
        "duration('90s') > duration('1m') && timestamp('2024-02-29T00:00:00Z').getDayOfYear() == 59",
        "timestamp('2024-01-01T23:00:00Z') + duration('1h') == timestamp('2024-01-02T00:00:00Z')",
        // Texts.
        "object.t.replace('A', 'x') == 'xb' && 'aaa'.replace('a', 'b', 2) == 'bba' && 'ab'.replace('', '-') == '-a-b-'",
        "['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab' && [].join(',') == '' && object.t + 'c' == 'Abc'",
        "object.t.lowerAscii().split('').map(c, c + c) == ['aa', 'bb'] && '%s %d'.format([object.t, 3]) == 'Ab 3'",
        "object.l + ['c'] == ['a', 'b', 'b', 'c'] && b'a' + b'b' == b'ab' && object.n + 1 == 4 && 1.5 + 1.0 == 2.5",
        "object.t.matches('^[A-Z]') && matches(object.t, 'b$') && 'abcb'.find('b.') == 'bc' && 'abcb'.findAll('b') == ['b', 'b']",
        "quantity('1Gi').isGreaterThan(quantity('1G')) && semver('1.2.3').major() == 1",
        "url('https://a.example:80/x?k=1').getPort() == '80' && [object.t, 'x'].filter(t, t != 'x')[0] == object.t",
        "object.l.first().value() == 'a' && object.l.last().orValue('') == 'b' && ![].first().hasValue()",
        "optional.unwrap([optional.of(1), optional.none()]) == [1] && [object.?t, object.?none].unwrapOpt() == ['Ab']",
        "optional.of(object.t).orValue('x') == 'Ab' && object.?none.orValue('d') == 'd'",
    ] {
        assert_eq!(holds(expression, &object), Ok(true), "{expression}");
    }
}

#[test]
fn an_expression_that_is_not_known_is_refused_when_it_is_read() {
    let env = functions::environment();
    for expression in [
        "object.t.matches('(')",
        "object.all(1, v, true)",
        "object.check('create')",
        "lists.range(3).size() == 3",
        "object.other()",
    ] {
        assert!(functions::compile(expression, &env).is_err(), "{expression}");
    }
}
