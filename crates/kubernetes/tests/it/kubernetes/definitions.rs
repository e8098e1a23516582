//! A definition and its objects that change in one plan. What an apply of the same objects one after the other accepts
//! is accepted, and what it refuses is refused.
//!
//! `KONVERGE_ROUNDS` sets how many random Specs are tried after the kept ones, `KONVERGE_SEED` repeats one.

use konverge_base::model::plan::{Action, Validation};
use serde_json::{Map, Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    random::Random,
    sequential_apply::{apply_in_order, seeds},
    stack::{TestStack, planned},
};

/// A definition with a schema of `spec` per version.
fn definition(group: &str, versions: &[(&str, bool, Value)]) -> Value {
    let last = versions.len() - 1;
    let version = |(index, (name, served, spec)): (usize, &(&str, bool, Value))| {
        json!({"name": name, "served": served, "storage": index == last,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let versions: Vec<_> = versions.iter().enumerate().map(version).collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("lamps.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Lamp", "plural": "lamps", "singular": "lamp"}, "versions": versions}})
}

fn lamp(group: &str, version: &str, ns: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{group}/{version}"), "kind": "Lamp", "metadata": {"name": name, "namespace": ns}, "spec": spec})
}

fn schema(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

/// A stack that waits until a definition is established, as every apply does.
fn waiting_stack(name: &str, kubeconfig: std::path::PathBuf) -> TestStack {
    let mut stack = TestStack::new(name, kubeconfig);
    stack.options.wait = true;
    stack
}

#[tokio::test]
async fn a_definition_gets_a_field_and_its_object_uses_it() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("together-field").await,
        Objects::of(cluster).await,
    );
    let group = format!("{ns}.example.com");
    let mut stack = waiting_stack("together-field", cluster.kubeconfig());
    let size = json!({"type": "integer"});
    let shade = json!({"type": "object", "properties": {"tone": {"type": "string", "enum": ["a", "b"]}, "soft": {"type": "boolean", "default": true}}});
    let narrow = definition(&group, &[("v1", true, schema(json!({"size": size})))]);
    let wide = definition(
        &group,
        &[("v1", true, schema(json!({"size": size, "shade": shade})))],
    );
    let lamp = |spec: Value| lamp(&group, "v1", &ns, "lamp", spec);
    stack.apply(&[narrow, lamp(json!({"size": 1}))]).await;

    let wanted = [wide.clone(), lamp(json!({"size": 1, "shade": {"tone": "a"}}))];
    let plan = stack.plan_well(&wanted).await;
    let change = planned(&plan, &wanted[1]).unwrap();
    assert_eq!(
        (change.action, change.validated),
        (Action::Update, Validation::Schema),
        "{change:?}"
    );
    let shown: Vec<_> = change
        .changes
        .iter()
        .map(|c| (c.path.as_str(), c.to.clone()))
        .collect();
    let becomes = json!({"tone": "a", "soft": true});
    assert_eq!(
        shown,
        [("/spec/shade", Some(becomes.clone()))],
        "with the default that the server sets"
    );
    let outcome = stack.carry_out(plan).await;
    assert!(outcome.error.is_none(), "{outcome:?}");
    assert_eq!(objects.get(&wanted[1]).await.unwrap()["spec"]["shade"], becomes);
    assert_eq!(stack.plan_well(&wanted).await.public.summary.unchanged, 2);

    // What the new schema does not let in is refused in the preview, though the old one would let it in.
    let closed = definition(&group, &[("v1", true, schema(json!({"shade": shade})))]);
    for (spec, words) in [
        (
            json!({"shade": {"tone": "c"}}),
            "`/spec/shade/tone` must be one of",
        ),
        (json!({"size": 2}), "`/spec/size` is not in the schema"),
        (
            json!({"size": 1, "shade": {"tone": "a"}}),
            "`/spec/size` is not in the schema",
        ),
    ] {
        let plan = stack.plan(&[closed.clone(), lamp(spec)]).await;
        let (_, failure) = plan.failures.first().expect("it is refused");
        assert!(failure.message.contains(words), "{failure:?}");
    }
}

#[tokio::test]
async fn a_definition_gets_a_version_and_its_object_moves_there() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("together-version").await,
        Objects::of(cluster).await,
    );
    let group = format!("{ns}.example.com");
    let mut stack = waiting_stack("together-version", cluster.kubeconfig());
    let size = || schema(json!({"size": {"type": "integer"}}));
    let both = |old: bool| definition(&group, &[("v1", old, size()), ("v2", true, size())]);
    let lamp =
        |version: &str, name: &str, size: u32| lamp(&group, version, &ns, name, json!({ "size": size }));
    stack
        .apply(&[definition(&group, &[("v1", true, size())]), lamp("v1", "a", 1)])
        .await;
    let wanted = [both(true), lamp("v2", "a", 2), lamp("v2", "b", 3)];
    let plan = stack.plan_well(&wanted).await;
    let seen = [1, 2].map(|n| planned(&plan, &wanted[n]).unwrap());
    assert_eq!(
        seen.map(|p| (p.action, p.validated)),
        [
            (Action::Update, Validation::Schema),
            (Action::Create, Validation::Schema)
        ]
    );
    let outcome = stack.carry_out(plan).await;
    assert!(outcome.error.is_none(), "{outcome:?}");
    assert_eq!(objects.get(&lamp("v1", "a", 0)).await.unwrap()["spec"]["size"], 2);
    assert_eq!(stack.plan_well(&wanted).await.public.summary.unchanged, 3);

    // A version that the new definition no longer serves, or never did, is named.
    for version in ["v1", "v7"] {
        let plan = stack.plan(&[both(false), lamp(version, "c", 1)]).await;
        let (_, failure) = plan.failures.first().expect("it is refused");
        let words = format!("does not serve `{group}/{version}`; it serves: v2");
        assert!(failure.message.contains(&words), "{failure:?}");
    }
}

#[tokio::test]
async fn a_scope_that_changes_is_named() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("together-scope").await;
    let group = format!("{ns}.example.com");
    let mut stack = waiting_stack("together-scope", cluster.kubeconfig());
    let mut scoped = definition(&group, &[("v1", true, schema(json!({})))]);
    let mut object = lamp(&group, "v1", &ns, "a", json!({}));
    stack.apply(&[scoped.clone(), object.clone()]).await;
    scoped["spec"]["scope"] = json!("Cluster");
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .shift_remove("namespace");
    let spec = crate::support::stack::spec(&[scoped, object]);
    let failure = stack.try_plan(&spec).await.err().expect("it is refused");
    let words = format!("`lamps.{group}`: its `spec.scope` is `Cluster`");
    let words = words.trim_start_matches('`');
    assert!(
        failure.message.contains(words) && failure.message.contains("serves `Lamp` as `Namespaced`"),
        "{failure:?}"
    );
    assert!(!failure.hints.is_empty());
}

/// A schema as far as the generator changes it: fields by name.
#[derive(Clone)]
struct Lamps {
    fields: Map<String, Value>,
    versions: Vec<(&'static str, bool)>,
    objects: Vec<(&'static str, &'static str, Map<String, Value>)>,
}

const FIELDS: [&str; 6] = ["size", "tone", "note", "any", "list", "deep"];

/// A schema of a field; the type of each is fixed.
fn field(name: &str, random: &mut Random) -> Value {
    let schemas = match name {
        "size" => vec![
            json!({"type": "integer"}),
            json!({"type": "integer", "minimum": 2}),
            json!({"type": "integer", "maximum": 2}),
        ],
        "tone" => vec![
            json!({"type": "string", "enum": ["a", "b"]}),
            json!({"type": "string", "enum": ["b", "c"]}),
            json!({"type": "string", "enum": ["a"], "default": "a"}),
        ],
        "note" => vec![
            json!({"type": "string", "maxLength": 3}),
            json!({"type": "string", "minLength": 3}),
            json!({"type": "string"}),
        ],
        "any" => vec![json!({"x-kubernetes-int-or-string": true})],
        "list" => vec![
            json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
            json!({"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}),
        ],
        _ => vec![
            json!({"type": "object", "required": ["on"], "properties": {"on": {"type": "boolean"}}}),
            json!({"type": "object", "properties": {"on": {"type": "boolean", "default": true}, "more": {"type": "string"}}}),
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        ],
    };
    random.pick(&schemas).clone()
}

fn value_of(name: &str, random: &mut Random) -> Value {
    let values = match name {
        "size" => vec![json!(1), json!(2), json!(3)],
        "tone" => vec![json!("a"), json!("b"), json!("c")],
        "note" => vec![json!("x"), json!("xyz"), json!("xyzzy")],
        "any" => vec![json!(1), json!("one")],
        "list" => vec![json!(["x"]), json!(["x", "y"]), json!(["z"])],
        _ => vec![json!({}), json!({"on": true}), json!({"on": false, "more": "x"})],
    };
    random.pick(&values).clone()
}

impl Lamps {
    /// Something that the server lets in.
    fn start() -> Self {
        let fields = json!({"size": {"type": "integer"}, "tone": {"type": "string"}});
        let spec = |size: u32| json!({"size": size, "tone": "a"}).as_object().unwrap().clone();
        Self {
            fields: fields.as_object().unwrap().clone(),
            versions: vec![("v1", true)],
            objects: vec![("v1", "a", spec(1)), ("v1", "b", spec(2))],
        }
    }

    fn edit(&mut self, random: &mut Random) {
        for _ in 0..=random.below(3) {
            let name = *random.pick(&FIELDS);
            if random.once_in(4) {
                self.fields.shift_remove(name);
            } else {
                self.fields.insert(name.to_owned(), field(name, random));
            }
        }
        if random.once_in(2) {
            self.versions = match random.below(3) {
                0 => vec![("v1", true), ("v2", true)],
                1 => vec![("v1", false), ("v2", true)],
                _ => vec![("v1", true), ("v2", true), ("v3", true)],
            };
        }
        for (version, _, spec) in &mut self.objects {
            if random.once_in(3) {
                *version = *random.pick(&["v1", "v2", "v3"]);
            } else if self.versions.len() > 1 && random.once_in(2) {
                *version = "v2";
            }
            for _ in 0..random.below(3) {
                // Mostly what the schema has.
                let known: Vec<_> = self.fields.keys().map(String::as_str).collect();
                let name = if random.once_in(5) {
                    *random.pick(&FIELDS)
                } else {
                    *random.pick(&known)
                };
                if random.once_in(4) {
                    spec.shift_remove(name);
                } else {
                    spec.insert(name.to_owned(), value_of(name, random));
                }
            }
            if !random.once_in(4) {
                spec.retain(|name, _| self.fields.contains_key(name));
            }
        }
        let is_new = self.objects.iter().all(|(_, name, _)| *name != "new");
        if is_new && random.once_in(3) {
            let version = self.versions.last().unwrap().0;
            let name = random.pick(&["size", "tone", "deep"]);
            let spec = [((*name).to_owned(), value_of(name, random))]
                .into_iter()
                .collect();
            self.objects.push((version, "new", spec));
        }
    }

    fn spec(&self, group: &str, ns: &str, serial: usize) -> Vec<Value> {
        let mut fields = self.fields.clone();
        fields.insert(format!("marker{serial}"), json!({"type": "string"}));
        let schema = schema(Value::Object(fields));
        let versions: Vec<_> = self
            .versions
            .iter()
            .map(|(name, served)| (*name, *served, schema.clone()))
            .collect();
        let objects = self
            .objects
            .iter()
            .map(|(version, name, spec)| lamp(group, version, ns, name, Value::Object(spec.clone())));
        std::iter::once(definition(group, &versions))
            .chain(objects)
            .collect()
    }
}

/// Random definitions and objects that change together.
#[tokio::test]
async fn definitions_and_objects_that_change_together_are_judged_as_one_after_the_other() {
    let cluster = Cluster::shared();
    let client = cluster.client().await;
    let objects = Objects::of(cluster).await;
    let (theirs, ours) = (
        cluster.namespace("together-theirs").await,
        cluster.namespace("together-ours").await,
    );
    let (mut accepted, mut refused, mut late) = (0, 0, 0);
    for seed in seeds() {
        let mut random = Random::of(seed);
        let groups = [
            format!("t{seed}.{theirs}.example.com"),
            format!("o{seed}.{ours}.example.com"),
        ];
        let mut lamps = Lamps::start();
        let mut stack = waiting_stack(&format!("together-{seed}"), cluster.kubeconfig());
        stack.apply(&lamps.spec(&groups[1], &ours, 0)).await;
        apply_in_order(&client, &lamps.spec(&groups[0], &theirs, 0))
            .await
            .unwrap();
        for serial in 1..=3 {
            lamps.edit(&mut random);
            let title = format!("seed {seed}, edit {serial}");
            let (in_order, wanted) = (
                lamps.spec(&groups[0], &theirs, serial),
                lamps.spec(&groups[1], &ours, serial),
            );
            let expected = apply_in_order(&client, &in_order).await;
            let plan = stack.plan(&wanted).await;
            match expected {
                Ok(()) => {
                    accepted += 1;
                    assert!(
                        plan.failures.is_empty(),
                        "{title}: {:?}\n{wanted:#?}",
                        plan.failures
                    );
                    let outcome = stack.carry_out(plan).await;
                    assert!(outcome.error.is_none(), "{title}: {outcome:?}\n{wanted:#?}");
                    for (theirs, ours) in in_order.iter().zip(&wanted).skip(1) {
                        let specs = [objects.get(theirs).await, objects.get(ours).await];
                        let [theirs, ours] = specs.map(|object| object.unwrap()["spec"].clone());
                        assert_eq!(theirs, ours, "{title}");
                    }
                    let again = stack.plan_well(&wanted).await;
                    assert_eq!(
                        again.public.summary.unchanged,
                        wanted.len(),
                        "{title}: {:?}",
                        again.public
                    );
                }
                Err(why) => {
                    refused += 1;
                    if plan.failures.is_empty() {
                        // What only the server knows of the new schema is refused when it is in force.
                        late += 1;
                        let outcome = stack.carry_out(plan).await;
                        assert!(outcome.error.is_some(), "{title}: {why}\n{wanted:#?}");
                        println!("{title}: only the apply says that {why}");
                    }
                    // A part of it was applied: the two sides are no longer the same.
                    break;
                }
            }
        }
    }
    println!("{accepted} were accepted, {refused} refused, {late} of them by the apply");
    if seeds().len() > 1 {
        assert!(
            accepted > 3 && refused > 3,
            "the generator has lost its teeth: {accepted}, {refused}"
        );
        assert!(
            late * 4 <= refused,
            "the preview lets too much pass: {late} of {refused}"
        );
    }
}
