//! Rules are parsed and evaluated in processes with limits: whatever a rule does, its set denies in time and says why,
//! and the other sets go on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use konverge_base::model::{
    RepoPath,
    plan::{Action, Basis, ChangeOrigin, FieldChange, ResourcePlan, StackPlan},
    plan_document::StackDocument,
    policy_finding::{Enforcement, PolicyFinding},
    spec::RuntimeKind,
};
use konverge_config::Config;
use konverge_policy_sets::{
    self as policy_sets, PolicyFile, PolicySet, PolicySets,
    workers::{RuleLimits, RuleWorkers},
};
use konverge_secrets::{HashKey, Secrets};
use serde_json::json;

use super::created_objects;

/// The limits of these tests: two seconds to be exact on a machine without optimization.
fn limits() -> RuleLimits {
    RuleLimits {
        time: Duration::from_secs(2),
        ..RuleLimits::default()
    }
}

fn workers() -> RuleWorkers {
    RuleWorkers::new(Some(env!("CARGO_BIN_EXE_konverge").into()), limits())
}

fn set(name: &str, settings: &str, files: &[(&str, String)]) -> PolicySet {
    let text = format!("policy: {{sets: [{{name: {name}, path: rules, {settings}}}]}}\n");
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| PolicyFile {
            path: (*path).to_owned(),
            text: text.clone(),
        })
        .collect();
    PolicySet::load(&Config::parse(&text).unwrap().policy.sets[0], &files, &[])
}

fn rego(body: &str) -> String {
    format!("package main\n\n{body}\n")
}

/// A set that finds something in each Service.
fn finds() -> PolicySet {
    let rule = rego("deny contains \"a Service\" if input.kind == \"Service\"");
    set("finds", "input: objects", &[("rules/finds.rego", rule)])
}

fn document(stack: &str) -> Arc<StackDocument> {
    let stack = stack.parse().unwrap();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "shop"}, "spec": {"type": "NodePort", "ratio": 0.1}});
    let change = FieldChange {
        path: "".into(),
        from: None,
        to: Some(service),
        origin: ChangeOrigin::Change,
    };
    let id = "v1:Service:shop:a".parse().unwrap();
    let plan = ResourcePlan::new(&stack, id, RuntimeKind::Kubernetes, Action::Create, vec![change]);
    let plan = StackPlan::new(RepoPath::root(), stack, Basis::Live, vec![plan]);
    Arc::new(policy_sets::document(&plan, Vec::new()))
}

fn sets(sets: Vec<PolicySet>) -> PolicySets {
    PolicySets::new(sets, &[])
}

async fn judge(
    workers: &RuleWorkers,
    sets: &PolicySets,
    document: &Arc<StackDocument>,
) -> Vec<PolicyFinding> {
    let about: Vec<_> = sets.about(document).collect();
    let outcomes = workers.outcomes(&about, document).await;
    let secrets = Secrets::new(HashKey::derive("k"));
    sets.findings_from(document, Timestamp::now(), &secrets, outcomes)
}

const TEMPLATE: &str = "apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: t}
spec:
  crd: {spec: {names: {kind: T}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package t
      violation[{\"msg\": \"m\"}] { BODY }
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: T
metadata: {name: c}
";

const POLICY: &str = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ['*'], apiVersions: ['v1'], operations: ['*'], resources: [services]}
  validations:
  - {expression: \"EXPRESSION\"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p, validationActions: [Deny]}
";

fn nested(open: &str, close: &str, levels: usize) -> String {
    format!("{}1{}", open.repeat(levels), close.repeat(levels))
}

/// A text that doubles with each line.
fn doubled(lines: usize) -> String {
    let mut rules = "x0 := \"aaaaaaaaaaaaaaaa\"\n".to_owned();
    for line in 1..=lines {
        let last = line - 1;
        rules += &format!("x{line} := concat(\"\", [x{last}, x{last}])\n");
    }
    rules + &format!("deny contains \"m\" if count(x{lines}) == 1")
}

/// Loops within each other.
fn loops(depth: usize) -> String {
    let list = format!("[{}]", vec!["1"; 30].join(","));
    (0..depth).fold("true".to_owned(), |body, at| format!("{list}.all(x{at}, {body})"))
}

/// Texts that double, each with a name.
fn doubled_in_cel(times: usize) -> String {
    let body = (0..times).rev().fold(format!("size(x{times}) == 1"), |body, at| {
        let (last, next) = (format!("x{at}"), at + 1);
        format!("[{last} + {last}].all(x{next}, {body})")
    });
    format!("['aaaaaaaaaaaaaaaa'].all(x0, {body})")
}

/// Each attack denies within the limit, in each language, and names what it is about; the other set continues.
#[tokio::test(flavor = "multi_thread")]
async fn what_takes_too_long_or_too_much_denies_and_other_sets_go_on() {
    let policy = |expression: &str| POLICY.replace("EXPRESSION", expression);
    let template = |body: &str| TEMPLATE.replace("BODY", body);
    let plain = "input: objects";
    let vap = "language: vap";
    let gatekeeper = "language: gatekeeper";
    let file = "rules/a.rego";
    let attacks = [
        (
            "brackets",
            plain,
            file,
            rego(&format!(
                "x := {}\ndeny contains \"m\" if x == 1",
                nested("[", "]", 40)
            )),
        ),
        (
            "braces",
            plain,
            file,
            rego(&format!(
                "x := {}\ndeny contains \"m\" if x == 1",
                nested("{", "}", 40)
            )),
        ),
        (
            "digits",
            plain,
            file,
            rego("deny contains \"m\" if count(sprintf(\"%d\", [bits.lsh(1, 20000000)])) == 1"),
        ),
        ("concat", plain, file, rego(&doubled(40))),
        (
            "range",
            plain,
            file,
            rego("deny contains \"m\" if { x := numbers.range(1, 100000000000); count(x) == 1 }"),
        ),
        (
            "network",
            plain,
            file,
            rego("deny contains \"m\" if { count(net.cidr_expand(\"::/0\")) == 1 }"),
        ),
        (
            "width",
            plain,
            file,
            rego("deny contains \"m\" if { f := \"%2000000000d\"; count(sprintf(f, [1])) == 1 }"),
        ),
        (
            "paths",
            plain,
            file,
            rego(
                "deny contains \"m\" if { nodes := numbers.range(1, 30); edges := {n: nodes | some n in nodes}; count(graph.reachable_paths(edges, [1])) == 1 }",
            ),
        ),
        (
            "objects",
            plain,
            file,
            rego(
                "deny contains \"m\" if { x := numbers.range(1, 99999); y := [[a, x] | some a in x]; z := [[b, c] | some b in y; some c in y]; count(z) == 1 }",
            ),
        ),
        (
            "template brackets",
            gatekeeper,
            "rules/a.yaml",
            template(&format!("x := {}; x == 1", nested("[", "]", 40))),
        ),
        (
            "template digits",
            gatekeeper,
            "rules/a.yaml",
            template("count(sprintf(\"%d\", [bits.lsh(1, 20000000)])) == 1"),
        ),
        ("loops", vap, "rules/a.yaml", policy(&loops(6))),
        ("texts", vap, "rules/a.yaml", policy(&doubled_in_cel(24))),
    ];
    let workers = workers();
    for (name, settings, path, text) in attacks {
        let other = ("rules/z.rego", rego("deny contains \"never\" if false"));
        let files = if settings == plain {
            vec![(path, text), other]
        } else {
            vec![(path, text)]
        };
        let sets = sets(vec![set("slow", settings, &files), finds()]);
        let started = Instant::now();
        let found = judge(&workers, &sets, &document("shop/dev")).await;
        let took = started.elapsed();
        let [one, two] = &found[..] else {
            panic!("{name}: {found:?}")
        };
        let (other, slow) = if one.rule.starts_with("finds/") {
            (one, two)
        } else {
            (two, one)
        };
        assert_eq!(other.message, "a Service", "{name}");
        assert_eq!(slow.verdict, Enforcement::Deny, "{name}");
        let message = &slow.message;
        let limits = [
            "2 s of processor time",
            "1536 MiB of memory",
            "stack overflowed",
            "worker crashed",
            "longer than",
        ];
        assert!(
            limits.iter().any(|limit| message.contains(limit)),
            "{name}: {message}"
        );
        if slow.rule == "slow/load" {
            assert!(message.contains(path), "{name}: {message}");
        }
        assert!(took < Duration::from_secs(60), "{name}: {took:?}");
    }
}

/// A set that was ended on three stacks is not tried on others, and one that cannot be parsed only once.
#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_ends_its_worker_again_and_again_is_not_tried_on_all_stacks() {
    let slow = rego(
        "deny contains \"m\" if { input.kind == \"Service\"; count(sprintf(\"%d\", [bits.lsh(1, 20000000)])) == 1 }",
    );
    let sets = sets(vec![set("slow", "input: objects", &[("rules/a.rego", slow)])]);
    let workers = workers();
    let mut messages = Vec::new();
    for stack in ["shop/a", "shop/b", "shop/c", "shop/d"] {
        let started = Instant::now();
        let found = judge(&workers, &sets, &document(stack)).await;
        assert_eq!((found.len(), found[0].verdict), (1, Enforcement::Deny));
        assert_eq!(found[0].rule, "slow/limits");
        messages.push((found[0].message.clone(), started.elapsed()));
    }
    assert!(messages[2].0.contains("slow (rules)"), "{messages:?}");
    assert!(messages[2].0.contains("2 s of processor time"), "{messages:?}");
    assert!(
        messages[3].0.contains("its evaluation was stopped on 3 stacks"),
        "{messages:?}"
    );
    assert!(messages[3].1 < Duration::from_secs(1), "{messages:?}");
}

/// A worker that something else kills is replaced; one that cannot start denies.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_is_replaced_and_one_that_does_not_start_denies() {
    let (workers, sets) = (workers(), sets(vec![finds()]));
    let first = judge(&workers, &sets, &document("shop/a")).await;
    assert_eq!(first[0].message, "a Service");
    let [pid] = workers.idle_pids()[..] else {
        panic!("one worker")
    };
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let again = judge(&workers, &sets, &document("shop/b")).await;
    assert_eq!(again[0].message, "a Service");

    for program in ["/nonexistent/konverge", "/bin/true", "/bin/cat"] {
        let workers = RuleWorkers::new(Some(program.into()), limits());
        let found = judge(&workers, &sets, &document("shop/a")).await;
        assert_eq!(
            (found.len(), found[0].verdict),
            (1, Enforcement::Deny),
            "{program}"
        );
        assert!(found[0].message.contains("denies everything"), "{found:?}");
    }
}

/// What crosses the pipe is what the rules would see without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_finds_what_is_found_in_this_process() {
    let said = rego("deny contains sprintf(\"%v\", [input]) if true");
    let sets = sets(vec![
        set("whole", "input: plan", &[("rules/a.rego", said.clone())]),
        set("objects", "input: objects", &[("rules/a.rego", said)]),
        set(
            "broken",
            "input: plan",
            &[("rules/a.rego", rego("deny contains if"))],
        ),
        finds(),
    ]);
    let document = document("shop/dev");
    let apart = judge(&workers(), &sets, &document).await;
    let secrets = Secrets::new(HashKey::derive("k"));
    let here = created_objects::all_findings(&sets, &document, Timestamp::now(), &secrets);
    assert_eq!(apart, here);
    assert_eq!(apart.len(), 4);
}
