//! Which keys of `konverge.yaml` are told for which stacks.

use std::collections::{BTreeMap, BTreeSet};

use super::{Config, StackSides, json_schema};
use konverge_base::model::{
    RepoPath,
    setting_change::SettingChange,
    stack::{CompileSetup, NamedBy, Stack},
};

const ALL: [&str; 3] = ["shop/dev", "shop/prod", "web/prod"];
const SHOP: &[&str] = &["shop/dev", "shop/prod"];
const PROD: &[&str] = &["shop/prod", "web/prod"];

fn stack(id: &str) -> Stack {
    let folder = RepoPath::normalize(&format!("appops/{id}")).unwrap();
    Stack {
        id: id.parse().unwrap(),
        names: id.parse().unwrap(),
        earlier_names: None,
        named_by: NamedBy::Names,
        project_folder: folder.parent().unwrap(),
        manifest: folder.child("stack.yaml"),
        folder,
        compile: Ok(CompileSetup::default()),
        cluster: None,
        kubeconfig: None,
        reads: std::collections::BTreeMap::new(),
    }
}

/// The stacks of each key that means something else.
fn told(before: &str, after: &str) -> BTreeMap<String, BTreeSet<String>> {
    let parse = |text: &str| Config::parse(text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    let (before, after) = (parse(before), parse(after));
    let stacks = ALL.map(stack);
    let sides: Vec<_> = stacks
        .iter()
        .map(|stack| StackSides {
            before: Some(stack),
            after: Some(stack),
        })
        .collect();
    let changes = before.setting_changes(&after, &sides);
    assert!(changes.iter().all(|change| !change.effect.is_empty()));
    let stacks = |change: SettingChange| change.stacks.iter().map(ToString::to_string).collect();
    changes
        .into_iter()
        .map(|change| (change.key.clone(), stacks(change)))
        .collect()
}

/// An edit of `konverge.yaml`: the section, its text before and after, the key that is told, and the stacks.
type Edit = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

/// Edits that do not meddle with one another. `""` is a section that is not there.
const EDITS: &[Edit] = &[
    (
        "state",
        "{url: 's3://a/x'}",
        "{url: 's3://b/x'}",
        "state.url",
        &ALL,
    ),
    (
        "clusters",
        "{one: {context: a}}",
        "{one: {context: b}}",
        "clusters",
        &ALL,
    ),
    (
        "rollouts",
        "[{name: web, waves: [{match: 'appops/shop/*'}, {match: 'appops/web/*'}]}]",
        "[{name: web, waves: [{match: 'appops/web/*'}]}]",
        "rollouts",
        &ALL,
    ),
    (
        "kcl",
        "{version: 0.12.2}",
        "{version: 0.13.2}",
        "kcl.version",
        &ALL,
    ),
    ("modules", "", "{hello: {network: true}}", "modules", &ALL),
    ("terraform", "", "{binary: tofu}", "terraform", &ALL),
    ("secrets", "", "{stores: {job: {kind: env}}}", "secrets", &ALL),
    (
        "outputs",
        "",
        "{allow: [{from: 'apps/*/db', to: 'apps/*/web'}]}",
        "outputs.allow",
        &ALL,
    ),
    (
        "apply",
        "{hooks: {workflows: [{when: pre, stacks: 'appops/shop/*', workflow: smoke.yml}]}}",
        "{hooks: {workflows: []}}",
        "apply.hooks.workflows",
        SHOP,
    ),
    (
        "policy",
        "{sets: [{name: base, path: ops/policy, stacks: 'appops/*/prod'}]}",
        "",
        "policy.sets",
        PROD,
    ),
    ("drift", "", "{reconcile: restore}", "drift.reconcile", &ALL),
    (
        "stacks",
        "[{match: 'appops/shop/*', policy: {approvals: 2}}]",
        "[{match: 'appops/shop/*', policy: {approvals: 1}}]",
        "stacks[].policy",
        SHOP,
    ),
    (
        "logins",
        "",
        "{prod: {aws: {role: 'arn:aws:iam::111122223333:role/a'}}}",
        "",
        &[],
    ),
    ("gates", "", "{calm: {approve: {by: [ada]}}}", "", &[]),
    ("delivery", "", "{registry: 'oci://registry.example/a'}", "", &[]),
    ("exclude", "", "[old]", "", &[]),
    ("include", "", "['apps/*/*']", "", &[]),
    ("version", "", "1", "", &[]),
    (
        "checks",
        "",
        "{data: [{files: 'a/*.yaml', schema: 'a:B'}]}",
        "",
        &[],
    ),
    (
        "notify",
        "",
        "[{kind: slack, url_env: CHAT, on: [drift]}]",
        "",
        &[],
    ),
    ("set", "", "{}", "", &[]),
    ("portal", "", "{}", "", &[]),
    ("models", "", "{}", "", &[]),
    ("production", "", "['apps/*/prod']", "", &[]),
];

fn text(sections: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let text: String = sections
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{key}: {value}\n"))
        .collect();
    if text.is_empty() { "{}\n".to_owned() } else { text }
}

/// Random sets of edits: exactly the keys of the edits are told, each with its stacks. `KONVERGE_SEED` repeats a run.
#[test]
fn random_changes_are_told_with_their_keys_and_stacks() {
    let seed = std::env::var("KONVERGE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(20_260_058);
    let mut state = seed.max(1);
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..500 {
        // Each section stays as it was before, stays as it is after, goes there, or comes back.
        let ways: Vec<u64> = EDITS.iter().map(|_| random() % 4).collect();
        let sections = EDITS.iter().zip(&ways);
        let before = text(
            sections
                .clone()
                .map(|((key, from, to, ..), way)| (*key, if way % 2 == 0 { *from } else { *to })),
        );
        let after = text(
            sections
                .clone()
                .map(|((key, from, to, ..), way)| (*key, if way / 2 == 0 { *from } else { *to })),
        );
        let mut expected: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for ((_, _, _, key, stacks), way) in sections {
            if way % 2 != way / 2 && !key.is_empty() {
                let stacks = stacks.iter().map(|stack| (*stack).to_owned()).collect();
                expected.insert((*key).to_owned(), stacks);
            }
        }
        assert_eq!(
            told(&before, &after),
            expected,
            "seed {seed}, round {round}:\n{before}---\n{after}"
        );
    }
}

/// The table above has an edit of every key at the top, so a new one is asked for.
#[test]
fn every_key_has_an_edit() {
    let schema = json_schema();
    let keys: BTreeSet<_> = schema["properties"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    let edited: BTreeSet<_> = EDITS.iter().map(|(key, ..)| (*key).to_owned()).collect();
    assert_eq!(edited, keys);
}

#[test]
fn a_stack_is_told_once_for_a_key_and_one_that_comes_or_goes_is_not() {
    let [dev, prod] = ["shop/dev", "shop/prod"].map(stack);
    let sides = [
        StackSides {
            before: None,
            after: Some(&dev),
        },
        StackSides {
            before: Some(&prod),
            after: None,
        },
    ];
    let before = Config::parse("kcl: {version: 0.12.2}\n").unwrap();
    let after = Config::parse("kcl: {version: 0.13.2}\n").unwrap();
    assert_eq!(before.setting_changes(&after, &sides), []);
    assert_eq!(before.setting_changes(&before, &sides), []);
}

/// One wave less: what was in it is told, and so is what moves to another wave.
#[test]
fn a_wave_that_goes_is_told_for_its_stacks() {
    let waves = |waves: &str| format!("rollouts: [{{name: web, waves: [{waves}]}}]\n");
    let all = waves("{match: 'appops/shop/dev'}, {match: 'appops/shop/*'}, {match: 'appops/web/*'}");
    let less = waves("{match: 'appops/shop/dev'}, {match: 'appops/web/*'}");
    let names = |stacks: &[&str]| stacks.iter().map(|stack| (*stack).to_owned()).collect();
    let told_of = |before: &str, after: &str| told(before, after)["rollouts"].clone();
    let expected: BTreeSet<String> = names(PROD);
    assert_eq!(told_of(&all, &less), expected);
    let every: BTreeSet<String> = names(&ALL);
    assert_eq!(told_of(&all, "{}\n"), every);
}

/// A line that ends names is told for the stacks of its folders alone.
#[test]
fn an_ended_name_is_told_for_its_stacks() {
    let line = "{stacks: 'appops/shop/*', was: 'apps/store/*', reason: renamed}";
    let after = format!("policy: {{ended_names: [{line}]}}\n");
    let stacks: BTreeSet<String> = SHOP.iter().map(|stack| (*stack).to_owned()).collect();
    assert_eq!(
        told("{}\n", &after),
        BTreeMap::from([("policy.ended_names".to_owned(), stacks)])
    );
}
