use serde_json::json;

use super::*;
use crate::admission::request::tests::{document, resource};
use konverge_base::model::{plan::Action as Planned, plan_document::DocumentResource};

const SERVICE: &str = "v1:Service:shop:a";
const ROLE: &str = "rbac.authorization.k8s.io/v1:ClusterRole:a";

fn template_of(kind: &str, target: &Value) -> Value {
    let mut target = target.clone();
    target["target"] = json!("admission.k8s.gatekeeper.sh");
    json!({"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": kind},
        "spec": {"crd": {"spec": {"names": {"kind": kind}}}, "targets": [target]}})
}

/// A template whose violation has this body.
fn template(body: &str) -> Value {
    let rego = format!("package t\nviolation[{{\"msg\": msg}}] {{ {body} }}\n");
    template_of("T", &json!({"rego": rego, "operations": ["*"]}))
}

fn constraint(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": kind, "metadata": {"name": "c"}, "spec": spec})
}

fn load(objects: &[Value]) -> Result<GatekeeperRules, String> {
    let texts: Vec<_> = objects.iter().map(Value::to_string).collect();
    GatekeeperRules::load(&[PolicyFile {
        path: "p/a.yaml".to_owned(),
        text: texts.join("\n---\n"),
    }])
}

fn created(id: &str) -> DocumentResource {
    let object = json!({"metadata": {"labels": {"tier": "front"}}, "spec": {"type": "NodePort"}});
    resource(id, Planned::Create, [None, Some(object)])
}

/// What the objects of a set say of a resource: rule, severity and text.
fn said_of(objects: &[Value], resource: DocumentResource) -> Vec<String> {
    let document = document(vec![resource]);
    let outcomes = load(objects).unwrap().outcomes(&document);
    let severity = |severity| match severity {
        Severity::Deny => "denies",
        Severity::Warn => "warns",
    };
    let outcomes = outcomes.into_iter().map(|outcome| match outcome {
        RuleOutcome::Found(found) => {
            assert!(found.resource.is_some());
            format!("{} {}: {}", found.rule, severity(found.severity), found.message)
        }
        RuleOutcome::Unknown {
            rule, severity: of, ..
        } => format!("{rule} {} or not", severity(of)),
    });
    outcomes.collect()
}

fn said(body: &str, spec: &Value, id: &str) -> Vec<String> {
    said_of(&[template(body), constraint("T", spec)], created(id))
}

#[test]
fn a_constraint_does_what_it_says_at_the_webhook() {
    let scoped = |actions: &[(&str, &str)]| {
        let actions = actions.iter();
        let actions = actions.map(|(action, point)| json!({"action": action, "enforcementPoints": [{"name": "other"}, {"name": point}]}));
        json!({"enforcementAction": "scoped", "scopedEnforcementActions": actions.collect::<Value>()})
    };
    let denied = Some("T:c denies: m");
    let warned = Some("T:c warns: m");
    for (spec, expected) in [
        (Value::Null, denied),
        (json!({}), denied),
        (json!({"enforcementAction": "deny"}), denied),
        (json!({"enforcementAction": "warn"}), warned),
        (json!({"enforcementAction": "dryrun"}), warned),
        (scoped(&[("deny", WEBHOOK)]), denied),
        (scoped(&[("warn", WEBHOOK)]), warned),
        (scoped(&[("dryrun", "*")]), warned),
        (scoped(&[("deny", "*")]), denied),
        (scoped(&[("warn", WEBHOOK), ("deny", "*")]), denied),
        (
            scoped(&[("warn", WEBHOOK), ("deny", "audit.gatekeeper.sh")]),
            warned,
        ),
        (scoped(&[("deny", "audit.gatekeeper.sh")]), None),
        (scoped(&[]), None),
    ] {
        let objects = [template("msg := \"m\""), constraint("T", &spec)];
        match expected {
            Some(expected) => assert_eq!(said_of(&objects, created(SERVICE)), [expected], "{spec}"),
            None => {
                let message = load(&objects).err().unwrap();
                assert!(
                    message.starts_with("it has no constraint that the webhook"),
                    "{spec}: {message}"
                );
            }
        }
    }
    // Without `scoped` the others say nothing.
    let mut spec = scoped(&[("warn", WEBHOOK)]);
    spec["enforcementAction"] = json!("deny");
    assert_eq!(said("msg := \"m\"", &spec, SERVICE), ["T:c denies: m"]);
}

#[test]
fn who_selects_by_labels_does_not_know_a_resource_with_unknown_labels() {
    let by_label = json!({"match": {"labelSelector": {"matchLabels": {"tier": "front"}}}});
    let labels = "/metadata/labels/tier";
    for (spec, path, body, expected) in [
        (&by_label, labels, "msg := \"m\"", "T:c denies or not"),
        (&json!({}), labels, "msg := \"m\"", "T:c denies: m"),
        (&by_label, "/spec/type", "msg := \"m\"", "T:c denies: m"),
        (
            &json!({}),
            "/spec/type",
            "msg := input.review.object.spec.type",
            "T:c denies or not",
        ),
    ] {
        let mut open = created(SERVICE);
        open.unknown = vec![path.into()];
        let objects = [template(body), constraint("T", spec)];
        assert_eq!(said_of(&objects, open), [expected], "{path} {body}");
    }
}

#[test]
fn a_constraint_that_does_not_select_says_nothing() {
    let kinds = |kind: &str| json!({"match": {"kinds": [{"kinds": [kind]}]}});
    let by_team =
        json!({"match": {"namespaceSelector": {"matchLabels": {"team": "a"}}}, "enforcementAction": "warn"});
    assert_eq!(
        said("msg := \"m\"", &kinds("Service"), SERVICE),
        ["T:c denies: m"]
    );
    assert!(said("msg := \"m\"", &kinds("Pod"), SERVICE).is_empty());
    let message = "T:c warns: it is not known whether the constraint selects this resource: it selects by the labels of Namespace shop, which is not part of the stack";
    assert_eq!(said("msg := \"m\"", &by_team, SERVICE), [message]);
}

#[test]
fn what_only_the_cluster_knows_denies() {
    for word in ["userInfo", "options", "dryRun", "uid"] {
        let message = format!("T:c denies: the template reads `{word}`, which only the cluster knows");
        let body = format!("msg := input.review.{word}");
        assert_eq!(said(&body, &json!({}), SERVICE), [message]);
    }
    // A parameter may be such a word.
    let spec = json!({"parameters": {"key": "userInfo"}});
    let mut open = template("msg := input.review[input.parameters.key]");
    open["apiVersion"] = json!("templates.gatekeeper.sh/v1beta1");
    let message = "T:c denies: the template reads `userInfo`, which only the cluster knows";
    assert_eq!(
        said_of(&[open, constraint("T", &spec)], created(SERVICE)),
        [message]
    );
}

#[test]
fn a_template_reads_the_namespace_that_is_known() {
    let body =
        "found := object.get(input.review, \"namespaceObject\", {\"kind\": \"none\"}); msg := found.kind";
    let message =
        "T:c denies: the template reads `namespaceObject`, and the Namespace is not part of the stack";
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let mut other = namespace.clone();
    other["apiVersion"] = json!("x.io/v1");
    let mut secret = namespace.clone();
    secret["kind"] = json!("Secret");
    for (object, expected) in [
        (namespace.clone(), "T:c denies: Namespace"),
        (other, message),
        (secret, message),
    ] {
        let objects = [template(body), constraint("T", &json!({})), object];
        assert_eq!(said_of(&objects, created(SERVICE)), [expected]);
    }
    for id in [ROLE, "v1:Namespace:shop"] {
        assert_eq!(said(body, &json!({}), id), ["T:c denies: none"], "{id}");
    }
    let old = template("msg := input.review._unstable.namespace.metadata.name");
    let objects = [old, constraint("T", &json!({})), namespace];
    assert_eq!(said_of(&objects, created(SERVICE)), ["T:c denies: shop"]);
}

#[test]
fn a_review_has_the_object_that_is_deleted() {
    let body = "old := [n | n := input.review.oldObject.n]; msg := sprintf(\"%v %v %v\", [input.review.operation, input.review.object.n, old])";
    let side = |n: u32| Some(json!({"n": n}));
    for (action, before_and_after, expected) in [
        (Planned::Create, [None, side(2)], vec!["T:c denies: CREATE 2 []"]),
        (
            Planned::Update,
            [side(1), side(2)],
            vec!["T:c denies: UPDATE 2 [1]"],
        ),
        (Planned::Delete, [side(1), None], vec!["T:c denies: DELETE 1 [1]"]),
        (
            Planned::Replace,
            [side(1), side(2)],
            vec!["T:c denies: DELETE 1 [1]", "T:c denies: CREATE 2 []"],
        ),
    ] {
        let objects = [template(body), constraint("T", &json!({}))];
        assert_eq!(
            said_of(&objects, resource(SERVICE, action, before_and_after)),
            expected
        );
    }
}

#[test]
fn a_template_in_cel_judges_by_the_whole_constraint() {
    let source = json!({"validations": [{"expression": "variables.params.word != 'bad'", "messageExpression": "params.metadata.name + variables.anyObject.spec.type"}]});
    let code = json!({"code": [{"engine": "K8sNativeValidation", "source": source}]});
    let mut template = template_of("T", &code);
    template["spec"]["crd"]["spec"]["validation"] =
        json!({"openAPIV3Schema": {"properties": {"word": {"default": "bad"}}}});
    for (spec, expected) in [
        (json!({}), vec!["T:c denies: cNodePort"]),
        (
            json!({"parameters": {"word": "bad"}, "enforcementAction": "warn"}),
            vec!["T:c warns: cNodePort"],
        ),
        (json!({"parameters": {"word": "good"}}), vec![]),
    ] {
        let objects = [template.clone(), constraint("T", &spec)];
        assert_eq!(said_of(&objects, created(SERVICE)), expected, "{spec}");
    }
    // Its operations are not named: a deletion is not judged.
    let object = created(SERVICE).after;
    let gone = resource(SERVICE, Planned::Delete, [object, None]);
    assert!(said_of(&[template, constraint("T", &json!({}))], gone).is_empty());
}

#[test]
fn a_constraint_has_the_template_of_its_kind() {
    let rego =
        |text: &str| json!({"rego": format!("package t\nviolation[{{\"msg\": \"{text}\"}}] {{ true }}\n")});
    let two = [
        constraint("U", &json!({})),
        template_of("T", &rego("of t")),
        template_of("U", &rego("of u")),
        constraint("T", &json!({})),
    ];
    assert_eq!(
        said_of(&two, created(SERVICE)),
        ["U:c denies: of u", "T:c denies: of t"]
    );
    let mut foreign = constraint("V", &json!({}));
    foreign["apiVersion"] = json!("x.io/v1");
    let mut other_template = template_of("T", &rego("other"));
    other_template["apiVersion"] = json!("x.io/v1");
    let with_others = [
        foreign,
        other_template,
        template_of("T", &rego("of t")),
        constraint("T", &json!({})),
    ];
    assert_eq!(said_of(&with_others, created(SERVICE)), ["T:c denies: of t"]);
    for (objects, why) in [
        (vec![], "it has no constraint that the webhook"),
        (
            vec![template("msg := 1")],
            "it has no constraint that the webhook",
        ),
        (
            vec![template("msg := 1"), constraint("V", &json!({}))],
            "p/a.yaml: c: the set has no template for constraints of kind V",
        ),
        (
            vec![template("msg := 1"), template("msg := 2")],
            "p/a.yaml: T: two templates make constraints of kind T",
        ),
        (
            vec![template("msg := 1"), constraint("T", &json!({"other": 1}))],
            "p/a.yaml: c: unknown field `other`",
        ),
        (
            vec![
                template("msg := 1"),
                constraint("T", &json!({"parameters": {"x": 1}})),
            ],
            "p/a.yaml: c: the schema of the template has no `parameters.x`",
        ),
    ] {
        let message = load(&objects).err().unwrap();
        assert!(message.starts_with(why), "{message}");
    }
}

#[test]
fn a_template_that_cannot_be_evaluated_denies() {
    let warned = json!({"enforcementAction": "warn"});
    let message = said("msg := 7", &warned, SERVICE);
    let why = "T:c denies: the rule could not be evaluated: a violation has no text `msg`";
    assert_eq!(message, [why]);
}

/// What the author of an object may try with a template that is not theirs.
#[test]
fn an_object_hides_nothing_from_a_template() {
    let of = |spec: Value| {
        let object = json!({"metadata": {"labels": {"release": "٣"}}, "spec": spec});
        resource(SERVICE, Planned::Create, [None, Some(object)])
    };
    let said = |body: &str, of: DocumentResource| said_of(&[template(body), constraint("T", &json!({}))], of);
    let denies = ["T:c denies: found"];
    // Digits of another script.
    let digits = "not re_match(`^\\d+$`, input.review.object.metadata.labels.release); msg := \"found\"";
    assert_eq!(said(&digits.replace("\\\\", "\\"), of(json!({}))), denies);
    // A map that the engine's own conversion takes for a number.
    let number = json!({"$serde_json::private::Number": "1", "hostNetwork": true});
    let network = "input.review.object.spec.hostNetwork; msg := \"found\"";
    assert_eq!(said(network, of(number.clone())), denies);
    // The same in a parameter.
    let parameters = json!({"parameters": {"of": number}});
    let mut by_parameter = template("input.parameters.of.hostNetwork; msg := \"found\"");
    by_parameter["spec"]["crd"]["spec"]["validation"] =
        json!({"openAPIV3Schema": {"x-kubernetes-preserve-unknown-fields": true}});
    assert_eq!(
        said_of(&[by_parameter, constraint("T", &parameters)], of(json!({}))),
        denies
    );
    // A field that a server drops.
    let labels = "not input.review.object.spec.owner; msg := \"found\"";
    assert_eq!(said(labels, of(json!({}))), denies);
}

/// A function fails while `with` has replaced the parameters: the next object has its own.
#[test]
fn what_a_with_replaced_in_a_template_is_gone_after_an_error() {
    let rego = "package t
violation[{\"msg\": \"replaced\"}] {
  input.review.object.metadata.name == \"a\"
  numbers.range(1, input.review.object.spec.type)[_] == 1 with lower as \"safe\"
}
violation[{\"msg\": \"found\"}] { lower(input.review.object.spec.type) == \"nodeport\" }
";
    let created = |name: &str| {
        let object = json!({"metadata": {"name": name}, "spec": {"type": "NodePort"}});
        resource(
            &format!("v1:Service:shop:{name}"),
            Planned::Create,
            [None, Some(object)],
        )
    };
    let objects = [
        template_of("T", &json!({"rego": rego, "operations": ["*"]})),
        constraint("T", &json!({})),
    ];
    let rules = load(&objects).unwrap();
    // The engine goes from one stack to the next.
    for _ in 0..2 {
        let document = document(vec![created("a"), created("b")]);
        let outcomes = rules.outcomes(&document).into_iter();
        let found = outcomes.map(|outcome| match outcome {
            RuleOutcome::Found(found) => found.message,
            RuleOutcome::Unknown { .. } => panic!("it is decided"),
        });
        let [failed, found] = &found.collect::<Vec<_>>()[..] else {
            panic!("two findings")
        };
        assert!(failed.contains("could not be evaluated"), "{failed}");
        assert_eq!(found, "found");
    }
}
