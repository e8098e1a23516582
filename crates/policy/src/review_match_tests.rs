use super::*;
use konverge_base::model::{plan::FieldChange, review::ReviewedStack, spec::RuntimeKind};
use serde_json::json;
use std::collections::BTreeSet;

fn change(path: &str, from: Value, to: Value, origin: ChangeOrigin) -> FieldChange {
    FieldChange {
        path: path.into(),
        from: Some(from),
        to: Some(to),
        origin,
    }
}

fn plan(action: Action, changes: Vec<FieldChange>) -> StackPlan {
    let stack: StackId = "shop/prod".parse().unwrap();
    let id = "apps/v1:Deployment:shop:web".parse().unwrap();
    let resource = ResourcePlan::new(&stack, id, RuntimeKind::Kubernetes, action, changes);
    StackPlan::new(
        "appops/shop/prod".parse_path(),
        stack,
        Basis::Live,
        vec![resource],
    )
}

trait ParsePath {
    fn parse_path(&self) -> konverge_base::model::RepoPath;
}

impl ParsePath for str {
    fn parse_path(&self) -> konverge_base::model::RepoPath {
        konverge_base::model::RepoPath::normalize(self).unwrap()
    }
}

fn record(plan: &StackPlan) -> ReviewRecord {
    ReviewRecord {
        version: 1,
        pull_request: 7,
        head: "a".repeat(40).parse().unwrap(),
        base: "b".repeat(40).parse().unwrap(),
        power: None,
        run: "https://example.com/run".into(),
        findings: BTreeSet::new(),
        stacks: vec![ReviewedStack {
            id: plan.id.clone(),
            basis: plan.basis,
            digest: plan.digest,
            spec_digest: None,
            claims: Default::default(),
            units: konverge_base::model::review::stack_units(plan),
        }],
        comment: None,
    }
}

fn objections(reviewed: &[&StackPlan], now: &StackPlan, drift: DriftPolicy) -> Vec<Objection> {
    let records: Vec<_> = reviewed.iter().map(|plan| record(plan)).collect();
    let reviewed = ReviewedUnits::from_records(&now.id, &records);
    reviewed
        .objections(now, drift)
        .into_iter()
        .map(|o| o.objection)
        .collect()
}

fn image(from: &str, to: &str) -> StackPlan {
    plan(
        Action::Update,
        vec![change("/image", json!(from), json!(to), ChangeOrigin::Change)],
    )
}

#[test]
fn what_was_seen_passes_and_what_was_not_stops() {
    assert!(objections(&[&image("a", "b")], &image("a", "b"), DriftPolicy::Restore).is_empty());
    assert_eq!(
        objections(&[&image("a", "b")], &image("a", "c"), DriftPolicy::Restore),
        [Objection::Unseen]
    );
    assert_eq!(
        objections(&[], &image("a", "b"), DriftPolicy::Restore),
        [Objection::Unseen]
    );
}

#[test]
fn the_ground_must_be_what_the_reviewer_saw() {
    let base = objections(&[&image("a", "b")], &image("x", "b"), DriftPolicy::Restore);
    assert_eq!(base, [Objection::BaseChanged]);
}

#[test]
fn our_last_write_is_known_ground_and_nothing_else_is() {
    let secret = |hash: &str| json!({"$secret": hash});
    let item = "/spec/containers/name=web/image";
    let seen = plan(
        Action::Update,
        vec![
            change(item, json!("a"), json!("c"), ChangeOrigin::Change),
            change("/token", secret("old"), secret("new"), ChangeOrigin::Change),
        ],
    );
    let written = json!({"spec": {"containers": [{"name": "side", "image": "s"}, {"name": "web", "image": "b"}]}, "token": secret("ours")});
    let reviewed = ReviewedUnits::from_records(&seen.id, &[record(&seen)]);
    let id = seen.resources[0].id.clone();
    let ours = LastWrites::from([(id, Arc::new(written.as_object().unwrap().clone()))]);
    let on_ours = reviewed.clone().with_last_writes(ours.clone());
    let refused = |reviewed: &ReviewedUnits, image: &str, token: &str| -> Vec<_> {
        let now = plan(
            Action::Update,
            vec![
                change(item, json!(image), json!("c"), ChangeOrigin::Change),
                change("/token", secret(token), secret("new"), ChangeOrigin::Change),
            ],
        );
        let objections = reviewed.objections(&now, DriftPolicy::Restore);
        objections
            .into_iter()
            .map(|o| (o.unit.path, o.objection))
            .collect()
    };
    let moved = |path: &str| (FieldPath::new(path), Objection::BaseChanged);
    assert_eq!(refused(&reviewed, "b", "ours"), [moved(item), moved("/token")]);
    assert_eq!(refused(&on_ours, "b", "ours"), []);
    assert_eq!(refused(&on_ours, "s", "ours"), [moved(item)]);
    assert_eq!(refused(&on_ours, "b", "theirs"), [moved("/token")]);
    // A field that neither we nor the live object have is a known base too; one that the object has is not.
    let on_new = |from: Option<Value>| {
        let mut added = plan(
            Action::Update,
            vec![change("/new", json!("x"), json!("c"), ChangeOrigin::Change)],
        );
        added.resources[0].changes[0].from = from;
        added.clone()
    };
    let reviewed_new = ReviewedUnits::from_records(&seen.id, &[record(&on_new(Some(json!("x"))))])
        .with_last_writes(ours.clone());
    let moved_base = |from| reviewed_new.objections(&on_new(from), DriftPolicy::Restore).len();
    assert_eq!((moved_base(None), moved_base(Some(json!("y")))), (0, 1));
    // It accepts nothing that was not reviewed, and nothing of another resource.
    let unseen = ReviewedUnits::default().with_last_writes(ours);
    let unseen = unseen.objections(&image("b", "c"), DriftPolicy::Restore);
    assert_eq!(unseen[0].objection, Objection::Unseen);
    let other = LastWrites::from([("v1:Secret:shop:web".parse().unwrap(), Arc::default())]);
    assert_eq!(
        refused(&reviewed.with_last_writes(other), "b", "old"),
        [moved(item)]
    );
}

#[test]
fn two_merges_in_a_row_pass_together() {
    let (first, second) = (image("a", "b"), image("a", "c"));
    assert!(objections(&[&first, &second], &image("b", "c"), DriftPolicy::Restore).is_empty());
}

#[test]
fn drift_is_put_back_or_stops_by_policy() {
    let drifted = plan(
        Action::Update,
        vec![change("/replicas", json!(9), json!(3), ChangeOrigin::Drift)],
    );
    assert!(objections(&[], &drifted, DriftPolicy::Restore).is_empty());
    assert_eq!(objections(&[], &drifted, DriftPolicy::Stop), [Objection::Drifted]);
}

#[test]
fn known_after_apply_admits_any_value_but_nothing_else() {
    let unknown = plan(
        Action::Create,
        vec![FieldChange {
            path: FieldPath::root(),
            from: None,
            to: Some(json!({"data": {"host": masked_value::unknown(), "port": 1}})),
            origin: ChangeOrigin::Change,
        }],
    );
    let known = |port: u32| {
        plan(
            Action::Create,
            vec![FieldChange {
                path: FieldPath::root(),
                from: None,
                to: Some(json!({"data": {"host": "10.0.0.1", "port": port}})),
                origin: ChangeOrigin::Change,
            }],
        )
    };
    assert!(objections(&[&unknown], &known(1), DriftPolicy::Restore).is_empty());
    assert_eq!(
        objections(&[&unknown], &known(2), DriftPolicy::Restore),
        [Objection::Unseen]
    );
}

fn at_class(action: Action, to: Value) -> StackPlan {
    plan(
        action,
        vec![change("/spec/class", json!("slow"), to, ChangeOrigin::Change)],
    )
}

#[test]
fn what_was_not_known_may_turn_out_an_update_and_nothing_graver() {
    let seen = at_class(Action::Unknown, masked_value::unknown());
    let now = |action| objections(&[&seen], &at_class(action, json!("fast")), DriftPolicy::Restore);
    assert!(now(Action::Update).is_empty());
    assert!(now(Action::Unknown).is_empty());
    for action in [Action::Replace, Action::Adopt, Action::Create] {
        assert_eq!(now(action), [Objection::Unseen], "{action:?}");
    }
    // A reviewer of a replacement with an unknown value accepted any value.
    let replaced = at_class(Action::Replace, masked_value::unknown());
    let now = at_class(Action::Replace, json!("fast"));
    assert!(objections(&[&replaced], &now, DriftPolicy::Restore).is_empty());
}

#[test]
fn the_ground_of_every_path_is_guarded_whatever_happens_to_its_object() {
    for action in [Action::Update, Action::Adopt, Action::Replace, Action::Unknown] {
        let change = |from: &str, to: &str| {
            let change = change("/image", json!(from), json!(to), ChangeOrigin::Change);
            plan(action, vec![change])
        };
        let now = |from: &str| objections(&[&change("a", "b")], &change(from, "b"), DriftPolicy::Restore);
        assert!(now("a").is_empty(), "{action:?}");
        assert_eq!(now("x"), [Objection::BaseChanged], "{action:?}");
    }
}

#[test]
fn a_delete_needs_a_review_of_its_own() {
    let gone = plan(Action::Delete, vec![]);
    assert_eq!(
        objections(&[&image("a", "b")], &gone, DriftPolicy::Restore),
        [Objection::Unseen]
    );
    assert!(objections(&[&gone], &gone, DriftPolicy::Restore).is_empty());
}

#[test]
fn the_first_apply_of_what_was_only_compared_as_specs_needs_an_agreement() {
    let now = image("a", "b");
    let outside = StackPlan {
        basis: Basis::Spec,
        ..now.clone()
    };
    let (outside, inside) = (record(&outside), record(&now));
    let first = |records: &[ReviewRecord]| ReviewedUnits::from_unrecorded(&now.id, records);
    let refused = |reviewed: ReviewedUnits| -> Vec<_> {
        let objections = reviewed.objections(&now, DriftPolicy::Restore);
        objections.into_iter().map(|o| o.objection).collect()
    };
    assert_eq!(
        refused(first(std::slice::from_ref(&outside))),
        [Objection::OnlySpecs]
    );
    assert!(refused(first(std::slice::from_ref(&outside)).with_agreed(&now)).is_empty());
    assert!(refused(first(&[outside.clone(), inside])).is_empty());
    assert_eq!(refused(first(&[])), [Objection::Unseen]);
    // Later applies have a state to compare with.
    assert!(refused(ReviewedUnits::from_records(&now.id, [&outside])).is_empty());
}

#[test]
fn who_agrees_to_a_plan_agrees_to_what_becomes_known_of_it() {
    let seen = at_class(Action::Unknown, masked_value::unknown());
    let agreed = ReviewedUnits::default().with_agreed(&seen);
    assert!(agreed.objections(&seen, DriftPolicy::Stop).is_empty());
    let later = |action, from: &str| {
        let change = change("/spec/class", json!(from), json!("fast"), ChangeOrigin::Change);
        let now = plan(action, vec![change]);
        agreed.resource_objections(&now.id, &now.resources[0], DriftPolicy::Stop)
    };
    assert!(later(Action::Update, "slow").is_empty());
    assert!(!later(Action::Update, "other").is_empty());
    assert!(!later(Action::Replace, "slow").is_empty());
    let drifted = plan(
        Action::Update,
        vec![change("/replicas", json!(9), json!(3), ChangeOrigin::Drift)],
    );
    let agreed = ReviewedUnits::default().with_agreed(&drifted);
    assert!(agreed.objections(&drifted, DriftPolicy::Stop).is_empty());
}

#[test]
fn a_version_that_moved_is_written_unless_rotation_stops() {
    let secret = |version: Option<&str>| {
        masked_value::reference(masked_value::ReferenceMark {
            reference: "db:pay#/password",
            version,
            text: None,
        })
    };
    let planned = |version: &str, origin: ChangeOrigin| {
        let from = json!({"$secret": "old"});
        plan(
            Action::Update,
            vec![change("/data/p", from, secret(Some(version)), origin)],
        )
    };
    let seen = |version: Option<&str>| {
        let from = json!({"$secret": "old"});
        let shown = plan(
            Action::Update,
            vec![change("/data/p", from, secret(version), ChangeOrigin::Change)],
        );
        let mut reviewed = ReviewedUnits::default();
        stack_units(&shown)
            .into_iter()
            .for_each(|unit| reviewed.add(unit));
        reviewed
    };
    let objections = |reviewed: ReviewedUnits, follows: bool, plan: &StackPlan| {
        let reviewed = if follows {
            reviewed.following_rotation()
        } else {
            reviewed
        };
        reviewed.objections(plan, DriftPolicy::Restore).len()
    };
    let newer = planned("8", ChangeOrigin::Change);
    assert_eq!(objections(seen(Some("7")), true, &newer), 0);
    assert_eq!(objections(seen(Some("7")), false, &newer), 1);
    assert_eq!(objections(seen(Some("8")), false, &newer), 0);
    // The preview could not read the version.
    assert_eq!(objections(seen(None), false, &newer), 0);
    // Another reference is another value.
    let mut other = newer.clone();
    other.resources[0].changes[0].to = Some(json!({"$secret": {"ref": "db:root#/password", "version": "7"}}));
    assert_eq!(objections(seen(Some("7")), true, &other), 1);
    // A file of the repository changes by a commit: nobody reviewed this one.
    let file = planned("file-b", ChangeOrigin::Change);
    assert_eq!(objections(seen(Some("file-a")), true, &file), 1);
    assert_eq!(objections(seen(Some("file-b")), true, &file), 0);
    // Nor did anybody who saw a reference to a file that was not there yet.
    assert_eq!(objections(seen(None), true, &file), 1);
    assert_eq!(objections(seen(None), false, &file), 1);
    let rotated = planned("8", ChangeOrigin::Rotation);
    assert_eq!(objections(ReviewedUnits::default(), true, &rotated), 0);
    assert_eq!(objections(ReviewedUnits::default(), false, &rotated), 1);
}

#[test]
fn a_value_fits_only_if_every_part_of_it_does() {
    let unknown = masked_value::unknown();
    let reviewed = json!({"a": 1, "ip": unknown, "list": [1, unknown]});
    let same = |actual: &Value| ReviewedUnits::default().fits(&reviewed, actual);
    assert!(same(&json!({"a": 1, "ip": "10.0.0.1", "list": [1, {"b": 2}]})));
    for other in [
        json!({"a": 2, "ip": "10.0.0.1", "list": [1, 2]}),
        json!({"a": 1, "list": [1, 2]}),
        json!({"a": 1, "ip": 1, "list": [1, 2], "more": 1}),
        json!({"a": 1, "more": 1, "list": [1, 2]}),
        json!({"a": 1, "ip": 1, "list": [1]}),
        json!({"a": 1, "ip": 1, "list": [1, 2, 3]}),
        json!({"a": 1, "ip": 1, "list": [2, 2]}),
    ] {
        assert!(!same(&other), "{other}");
    }
}

#[test]
fn what_waited_for_outputs_fits_only_their_values() {
    let text = "pg://${shop/database.endpoint}/shop";
    let reviewed = json!({"a": 1, "url": masked_value::unknown_output(text)});
    let filled = FilledTexts::from([
        (text.to_owned(), json!("pg://one.local/shop")),
        ("${shop/database.port}".to_owned(), json!(5432)),
    ]);
    let admits = |actual: Value| {
        ReviewedUnits::default()
            .with_filled(filled.clone())
            .fits(&reviewed, &actual)
    };
    assert!(admits(json!({"a": 1, "url": "pg://one.local/shop"})));
    for other in [
        json!({"a": 1, "url": "pg://other.local/shop"}),
        json!({"a": 1, "url": 5432}),
        json!({"a": 2, "url": "pg://one.local/shop"}),
    ] {
        assert!(!admits(other.clone()), "{other}");
    }
    // Without a value nothing is accepted.
    assert!(!ReviewedUnits::default().fits(&reviewed, &json!({"a": 1, "url": "pg://one.local/shop"})));
}

#[test]
fn the_second_of_two_merges_starts_from_the_first() {
    let (first, second) = (image("a", "b"), image("a", "c"));
    assert!(objections(&[&first, &second], &image("b", "c"), DriftPolicy::Restore).is_empty());
    assert_eq!(
        objections(&[&second], &image("b", "c"), DriftPolicy::Restore),
        [Objection::BaseChanged]
    );
}

#[test]
fn only_reviews_of_the_stack_itself_saw_its_live_objects() {
    let now = image("a", "b");
    let with_basis = |id: &str, basis: Basis, units: bool| {
        let mut record = record(&now);
        record.stacks[0].id = id.parse().unwrap();
        record.stacks[0].basis = basis;
        if !units {
            record.stacks[0].units = Default::default();
        }
        record
    };
    let objections = |records: &[ReviewRecord]| -> Vec<_> {
        let reviewed = ReviewedUnits::from_unrecorded(&now.id, records);
        let objections = reviewed.objections(&now, DriftPolicy::Restore);
        objections.into_iter().map(|found| found.objection).collect()
    };
    let own = with_basis("shop/prod", Basis::Spec, true);
    assert_eq!(objections(std::slice::from_ref(&own)), [Objection::OnlySpecs]);
    for other in [
        with_basis("shop/dev", Basis::Live, true),
        with_basis("shop/prod", Basis::Live, false),
    ] {
        assert_eq!(objections(&[own.clone(), other]), [Objection::OnlySpecs]);
    }
    assert!(objections(&[own, with_basis("shop/prod", Basis::Live, true)]).is_empty());
}

#[test]
fn what_disappeared_during_the_apply_is_created_again_unless_drift_stops_it() {
    let again = plan(
        Action::Create,
        vec![change(
            "",
            Value::Null,
            json!({"image": "a"}),
            ChangeOrigin::Change,
        )],
    );
    let refused = |drift| {
        let refused = ReviewedUnits::recreation_objections(&again.id, &again.resources[0], drift);
        refused.into_iter().map(|one| one.objection).collect::<Vec<_>>()
    };
    assert!(refused(DriftPolicy::Restore).is_empty());
    assert_eq!(refused(DriftPolicy::Stop), [Objection::Drifted]);
    // Before the apply the same creation needs a review.
    assert_eq!(objections(&[], &again, DriftPolicy::Restore), [Objection::Unseen]);
}
