//! The policies and the random ConfigMaps that [`super::admission_policies`] holds against the API server.

use serde_json::{Value, json};

use crate::support::random::Random;

/// Expressions with a message, or with a messageExpression if it starts with `=`.
pub(super) const POLICIES: [&[(&str, &str)]; 44] = [
    &[(
        "object == null || object.metadata.name.startsWith('new')",
        "the name",
    )],
    &[(
        "object == null || !has(object.data.s) || object.data.s.size() < 4",
        "='too long: ' + object.data.s",
    )],
    // Without `has`, what is absent is an error.
    &[("object == null || object.data.n != '7'", "seven")],
    &[(
        "object == null || !has(object.data.n) || int(object.data.n) < 50",
        "",
    )],
    &[(
        "request.operation != 'DELETE' || oldObject.data.s != 'keep'",
        "='kept: ' + request.name",
    )],
    &[(
        "oldObject == null || object == null || !has(oldObject.data.s) || !has(object.data.s) || oldObject.data.s == object.data.s",
        "s never changes",
    )],
    &[(
        "object == null || !has(object.metadata.labels) || object.metadata.labels.all(k, object.metadata.labels[k] != 'bad')",
        "bad label",
    )],
    &[("object == null || variables.text.lowerAscii() != 'abc'", "abc")],
    &[(
        "object == null || !has(object.data.q) || !isQuantity(object.data.q) || quantity(object.data.q).isLessThan(quantity('1Gi'))",
        "too much",
    )],
    &[(
        "object == null || !has(object.data.q) || quantity(object.data.q).compareTo(quantity('500m')) != 0",
        "half",
    )],
    &[(
        "object == null || !has(object.data.ip) || isIP(object.data.ip)",
        "not an address",
    )],
    &[(
        "object == null || !has(object.data.ip) || !isIP(object.data.ip) || !cidr('10.0.0.0/8').containsIP(object.data.ip)",
        "private",
    )],
    &[(
        "object == null || !has(object.data) || sets.contains(['s', 'n', 'q', 'ip', 'v', 'u', 'c', 'f', 't', 'd', 'w', 'probe'], object.data.map(k, k))",
        "another key",
    )],
    &[(
        "object == null || !has(object.data.s) || object.data.s.split('b').size() < 3",
        "=object.data.s.replace('b', '-')",
    )],
    &[(
        "object == null || !has(object.data.s) || object.data.s in ['', 'a', 'keep', 'aB', 'abc', 'bbb'].filter(x, x != 'bbb') || !has(params.data) || params.data.strict != 'yes'",
        "by parameter",
    )],
    &[
        (
            "object == null || !has(object.data.s) || object.data.s.matches('^[a-z]*$')",
            "letters",
        ),
        (
            "object == null || !has(object.data.n) || object.data.n != '3'",
            "three",
        ),
    ],
    &[
        (
            "object == null || !has(object.data.n) || [1, 2, int(object.data.n)].isSorted()",
            "order",
        ),
        (
            "object == null || !has(object.data.n) || [int(object.data.n), 9].max() < 60",
            "=string([int(object.data.n), 9].max()) + ' is the largest'",
        ),
    ],
    // The empty message is not used.
    &[(
        "object == null || !has(object.data.s) || object.data.s != ''",
        "=string(object.data.s)",
    )],
    &[(
        "object == null || !has(object.data.v) || (isSemver(object.data.v) && semver(object.data.v).compareTo(semver('1.2.0')) < 0)",
        "='version ' + object.data.v",
    )],
    &[(
        "object == null || !has(object.data.v) || !isSemver(object.data.v, true) || semver(object.data.v, true).major() != 2",
        "two",
    )],
    &[(
        "object == null || !has(object.data.v) || !isSemver(object.data.v) || !semver(object.data.v).isGreaterThan(semver('1.0.0-beta.2')) || semver(object.data.v).patch() == 0",
        "patch",
    )],
    &[(
        "object == null || !has(object.data.u) || isURL(object.data.u)",
        "not a URL",
    )],
    &[(
        "object == null || !has(object.data.u) || !isURL(object.data.u) || url(object.data.u).getHost() != 'a.example:8080'",
        "=url(object.data.u).getScheme() + ' ' + url(object.data.u).getHostname() + ' ' + url(object.data.u).getPort() + ' ' + url(object.data.u).getEscapedPath()",
    )],
    &[(
        "object == null || !has(object.data.u) || !isURL(object.data.u) || !('k' in url(object.data.u).getQuery()) || url(object.data.u).getQuery()['k'].size() < 2",
        "=url(object.data.u).getQuery()['k'].join('+')",
    )],
    &[(
        "object == null || !has(object.data.s) || object.data.s.find('b+') != 'bbb'",
        "=object.data.s.findAll('b').join('-') + object.data.s.findAll('b', 1).join('-')",
    )],
    &[(
        "object == null || !has(object.data.s) || object.data.s.split('').indexOf('b') != 1",
        "=string(object.data.s.split('').lastIndexOf('b'))",
    )],
    &[(
        "object == null || !has(object.data.s) || object.data.s.size() < 1 || object.data.s.upperAscii().charAt(0) != 'B'",
        "='%s has %d'.format([object.data.s, object.data.s.size()]) + strings.quote(object.data.s.substring(1).trim())",
    )],
    &[(
        "object == null || !has(object.data.ip) || !isIP(object.data.ip) || !(ip(object.data.ip).isLinkLocalUnicast() || ip(object.data.ip).isLoopback())",
        "='family ' + string(ip(object.data.ip).family())",
    )],
    &[(
        "object == null || !has(object.data.c) || !isCIDR(object.data.c) || !cidr('10.0.0.0/8').containsCIDR(object.data.c)",
        "=string(cidr(object.data.c).prefixLength())",
    )],
    &[(
        "object == null || !has(object.data.q) || !isQuantity(object.data.q) || quantity(object.data.q).asApproximateFloat() < 1000000000.0",
        "=string(sign(quantity(object.data.q))) + string(quantity(object.data.q).isInteger()) + string([1, 2].sum() + [4, 3].min())",
    )],
    // Loops with two variables.
    &[(
        "object == null || !has(object.data) || object.data.all(k, v, v != 'abc' || k != 's')",
        "=string(object.data.transformList(k, v, v.size() > 3, k).size())",
    )],
    &[(
        "object == null || !has(object.data) || object.data.transformMap(k, v, k == 'c' || k == 'ip', v).size() < 2",
        "='both ' + string(object.data.transformMapEntry(k, v, {k + 'x': v}).size())",
    )],
    &[(
        "object == null || !has(object.data.s) || !object.data.s.split('').existsOne(i, c, c == 'b' && i > 0)",
        "=object.data.s.split('').transformList(i, c, i > 0, c + string(i)).join('')",
    )],
    &[(
        "object == null || !has(object.metadata.labels) || !object.metadata.labels.exists(k, v, k == 'tier' && v == 'b')",
        "tier b",
    )],
    // Formats.
    &[(
        "object == null || !has(object.data.s) || object.data.s == '' || !format.dns1123Label().validate(object.data.s).hasValue()",
        "='label ' + object.data.s",
    )],
    &[(
        "object == null || !has(object.data.f)",
        "='fits ' + ['dns1123Label', 'dns1123Subdomain', 'dns1035Label', 'qualifiedName', 'dns1123LabelPrefix', 'dns1123SubdomainPrefix', 'dns1035LabelPrefix', 'labelValue', 'uri', 'uuid', 'byte', 'date', 'datetime'].filter(n, !format.named(n).value().validate(object.data.f).hasValue()).join(' ')",
    )],
    // Addresses.
    &[(
        "object == null || !has(object.data.ip) || !isIP(object.data.ip) || ip.isCanonical(object.data.ip)",
        "='it is ' + string(ip(object.data.ip))",
    )],
    &[(
        "object == null || !has(object.data.c) || !isCIDR(object.data.c) || cidr(object.data.c) == cidr(object.data.c).masked()",
        "=string(cidr(object.data.c).ip()) + ' ' + string(cidr(object.data.c).masked())",
    )],
    // Time.
    &[
        (
            "object == null || !has(object.data.t) || timestamp(object.data.t).getMonth() != 1",
            "=string(timestamp(object.data.t) + duration('90m')) + ' ' + string(timestamp(object.data.t).getDayOfWeek())",
        ),
        (
            "object == null || !has(object.data.d) || duration(object.data.d) < duration('1h')",
            "=string(duration(object.data.d).getMinutes())",
        ),
    ],
    // Optional values, and the Namespace.
    &[(
        "object == null || object.?data.?n.orValue('0') != '50' || namespaceObject.metadata.name == ''",
        "=namespaceObject.metadata.name.substring(0, 6) + ' ' + object.?data.?n.optMap(n, n + '!').orValue('none')",
    )],
    &[(
        "object == null || !has(object.data.n) || double(object.data.n) * 2.0 != 98.0",
        "=string(int(double(object.data.n) / 2.0) % 7) + string(bytes(object.data.n).size()) + string(type(object.data.n) == string)",
    )],
    // Classes of patterns know ASCII alone, and letters without case fold as in Unicode.
    &[(
        "object == null || !has(object.data.w) || !object.data.w.matches('^\\\\d+$')",
        "=object.data.w.findAll('\\\\D').join('-')",
    )],
    &[(
        "object == null || !has(object.data.w) || object.data.w.matches('^\\\\w+$')",
        "=object.data.w.findAll('\\\\s').join('-') + ' ' + object.data.w.findAll('[[:alpha:]]').join('-')",
    )],
    &[(
        "object == null || !has(object.data.w) || !object.data.w.matches('(?i)^[ks]$')",
        "=string(object.data.w.matches('\\\\b')) + string(object.data.w.size()) + object.data.w.lowerAscii()",
    )],
];

/// The policy `n` with its binding, for the objects of a namespace.
pub(super) fn policy(n: usize, namespace: &str) -> [Value; 2] {
    let name = format!("oracle-{namespace}-{n}");
    let probe = format!(
        "object == null || !has(object.data) || !('probe' in object.data) || object.data.probe != 'p{n}'"
    );
    let mut validations = vec![json!({"expression": probe, "message": "probe"})];
    for (expression, message) in POLICIES[n] {
        let mut validation = json!({"expression": expression});
        match message.strip_prefix('=') {
            Some(expression) => validation["messageExpression"] = json!(expression),
            None if message.is_empty() => {}
            None => validation["message"] = json!(message),
        }
        validations.push(validation);
    }
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]});
    let mut spec = json!({
        "matchConstraints": {"resourceRules": [rule]},
        "variables": [{"name": "text", "expression": "has(object.data.s) ? object.data.s : 'nothing'"}],
        "validations": validations,
    });
    let mut binding = json!({
        "policyName": name, "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
    });
    match n {
        2 => spec["failurePolicy"] = json!("Ignore"),
        6 => {
            let selector =
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["free"]}]});
            spec["matchConstraints"]["objectSelector"] = selector;
        }
        10 => {
            spec["matchConditions"] =
                json!([{"name": "free", "expression": "object == null || object.metadata.name != 'new-3'"}])
        }
        14 => {
            spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
            binding["paramRef"] = json!({"name": "strict", "parameterNotFoundAction": "Deny"});
        }
        16 => {
            let annotation = "object == null || !has(object.data.n) ? '' : string(int(object.data.n))";
            spec["auditAnnotations"] = json!([{"key": "n", "valueExpression": annotation}])
        }
        15 => {
            spec["matchConstraints"]["excludeResourceRules"] = json!([{
                "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*"], "resourceNames": ["base-1"],
            }])
        }
        _ => {}
    }
    let api_version = "admissionregistration.k8s.io/v1";
    let object = |kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    [
        object("ValidatingAdmissionPolicy", spec),
        object("ValidatingAdmissionPolicyBinding", binding),
    ]
}

pub(super) fn map(namespace: &str, name: &str, labels: Value, data: Value) -> Value {
    let mut object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}});
    for (value, place) in [(labels, "/metadata/labels"), (data, "/data")] {
        if value.as_object().is_some_and(|map| !map.is_empty()) {
            let (parent, key) = place.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[key] = value;
        }
    }
    object
}

pub(super) fn random_map(random: &mut Random, namespace: &str, name: &str) -> Value {
    let (mut data, mut labels) = (json!({}), json!({}));
    let values: [(&str, &[&str]); 12] = [
        (
            "w",
            &[
                "7",
                "\u{663}",
                "7\u{663}",
                "e",
                "\u{e9}",
                "a b",
                "a\u{a0}b",
                "K",
                "\u{212a}",
                "\u{17f}",
                "stra\u{df}e",
                "a_9",
            ],
        ),
        ("s", &["", "a", "keep", "aB", "abc", "bbb", "ABC", "longer"]),
        ("n", &["3", "7", "49", "50", "99", "x", "-1"]),
        (
            "q",
            &["500m", "0.5", "1Gi", "1Mi", "1e3", "2000M", "1.5Gi", "half", ".5"],
        ),
        (
            "ip",
            &[
                "10.1.2.3",
                "192.168.0.1",
                "::1",
                "10.1",
                "FE80::1",
                "0:0::1",
                "::ffff:10.1.2.3",
            ],
        ),
        (
            "v",
            &[
                "1.1.9",
                "1.2.0",
                "2.0.0",
                "v2.1",
                "1.0.0-beta.11",
                "1.0.0-beta.2",
                "01.0.0",
                "1.0",
            ],
        ),
        (
            "u",
            &[
                "https://a.example:8080/x%20y?k=1&k=2&z",
                "https://a.example:8080",
                "/only/path?k=1&k=2",
                "a.example",
                "",
                "http://a.example/?k=%2B&k=+",
            ],
        ),
        (
            "c",
            &[
                "10.1.0.0/16",
                "10.1.2.3/16",
                "10.0.0.0/7",
                "192.0.2.0/24",
                "10.1.0.0",
                "::/0",
                "10.0.0.0/8",
            ],
        ),
        (
            "f",
            &[
                "a.example/B_c",
                "2024-02-29",
                "2023-02-29",
                "2024-02-29T10:00:00Z",
                "2024-02-29t24:00:00.1+01:00",
                "aGVsbG8=",
                "123e4567-E89b-12d3-a456-426614174000",
                "My_Label",
                "1-a",
                "",
                "https://a.example/x",
                "a.b-",
                "-",
                "/x",
                "a/b/c",
            ],
        ),
        (
            "t",
            &["2024-02-29T23:00:00Z", "2023-12-31T00:00:00+02:00", "yesterday"],
        ),
        ("d", &["90s", "2h", "1h1m", "x"]),
        ("other", &["x"]),
    ];
    for (key, values) in values {
        let seldom = match key {
            "other" => 6,
            "v" | "u" | "c" => 4,
            "f" | "t" | "d" => 8,
            _ => 2,
        };
        if random.once_in(seldom) {
            data[key] = json!(random.pick(values));
        }
    }
    for (key, values) in [("app", ["web", "free", "bad"]), ("tier", ["a", "bad", "b"])] {
        if random.once_in(2) {
            labels[key] = json!(random.pick(&values));
        }
    }
    map(namespace, name, labels, data)
}
