//! What reviews, digests and policies approve, and what they do not.

use konverge_base::model::{
    RepoPath,
    other_names::OtherNames,
    plan::{Action, Basis, ChangeOrigin, FieldChange},
    plan_document::{DocumentStack, StackDocument},
    review::ReviewedStack,
};
use konverge_secrets::{HashKey, Secrets};

use super::*;
use crate::{
    policy::policy_fixture::{check, commit, plan},
    trust::reviewers::KnownPeople,
};

/// What the pull request 7 showed, if it showed this plan.
fn record(plan: &StackPlan) -> ReviewRecord {
    ReviewRecord {
        version: 1,
        pull_request: 7,
        head: commit('a'),
        base: commit('b'),
        power: None,
        run: String::new(),
        findings: BTreeSet::new(),
        stacks: vec![ReviewedStack {
            id: plan.id.clone(),
            basis: Basis::Live,
            digest: plan.digest,
            spec_digest: None,
            claims: Default::default(),
            units: stack_units(plan),
        }],
        comment: None,
    }
}

fn gate(rules: &str, records: Vec<ReviewRecord>, approvals: &[Digest]) -> ReviewGate {
    let known = KnownPeople {
        approvals: vec![(7, "bob", commit('a'))],
        commits: vec![(commit('e'), commit('f'), vec!["carol"], false)],
        ..KnownPeople::default()
    };
    ReviewGate::new(check(rules, known), records, approvals.iter().copied().collect())
}

/// The drift that a check finds now, where the applied commit is not the first.
fn approved(difference: &StackPlan) -> BTreeMap<StackId, ApprovedDrift> {
    let drift = ApprovedDrift {
        difference: Ok(difference.clone()),
        before: Some(commit('e')),
    };
    BTreeMap::from([(difference.id.clone(), drift)])
}

async fn decide(gate: &ReviewGate, plan: &StackPlan, past: &PriorState) -> Result<ApprovedPlan, Refusal> {
    let document = || StackDocument {
        version: 1,
        stack: DocumentStack {
            id: plan.id.clone(),
            folder: RepoPath::root(),
        },
        basis: Basis::Live,
        known_as: OtherNames::default(),
        hidden: BTreeSet::new(),
        resources: Vec::new(),
    };
    let document = &document;
    gate.stack(&ProposedPlan { plan, document }, past).await
}

async fn refused(gate: &ReviewGate, plan: &StackPlan, past: &PriorState) -> Refusal {
    decide(gate, plan, past).await.err().unwrap()
}

fn late<'a>(resource: &'a konverge_base::model::plan::ResourcePlan, secrets: &'a Secrets) -> LatePlan<'a> {
    LatePlan {
        shown: resource,
        truth: None,
        secrets,
    }
}

#[tokio::test]
async fn exactly_what_a_review_showed_that_is_not_used_may_be_applied() {
    let shown = plan(&[Action::Create]);
    let past = PriorState::default();
    let gate_of = |plan| gate("", vec![record(plan)], &[]);
    let approval = decide(&gate_of(&shown), &shown, &past).await.ok().unwrap();
    let pulls: Vec<_> = approval
        .authorization
        .pull_requests
        .iter()
        .map(|pull| pull.number)
        .collect();
    assert_eq!(pulls, [7]);
    assert_eq!(approval.decisions, Decisions::default());

    // More than was shown, something else than was shown, nothing was shown, it was applied already.
    let more = plan(&[Action::Create, Action::Create]);
    let other = plan(&[Action::Delete]);
    let used = PriorState {
        used: BTreeSet::from([7]),
        ..PriorState::default()
    };
    for (gate, plan, past) in [
        (gate_of(&shown), &more, &past),
        (gate_of(&shown), &other, &past),
        (gate("", Vec::new(), &[]), &shown, &past),
        (gate_of(&shown), &shown, &used),
    ] {
        let refusal = refused(&gate, plan, past).await;
        assert_eq!(refusal.error.kind, ErrorKind::Unreviewed);
        let hints = refusal.error.hints.join("\n");
        assert!(hints.contains(&plan.digest.to_string()), "{hints}");
        let stopped = &refusal.decisions.stopped;
        assert_eq!((stopped.len(), stopped[0].plan.digest), (1, plan.digest));
        assert!(!stopped[0].units.is_empty());
    }
}

#[tokio::test]
async fn a_digest_approves_exactly_its_plan() {
    let unseen = plan(&[Action::Delete]);
    let past = PriorState {
        commit: None,
        ..PriorState::default()
    };
    let other = plan(&[Action::Create]).digest;
    let approval = decide(&gate("", Vec::new(), &[unseen.digest, other]), &unseen, &past).await;
    let approval = approval.ok().unwrap();
    assert_eq!(approval.decisions.matched, BTreeSet::from([unseen.digest]));
    let refusal = refused(&gate("", Vec::new(), &[other]), &unseen, &past).await;
    assert_eq!(refusal.error.kind, ErrorKind::Unreviewed);
    assert!(refusal.decisions.matched.is_empty());
}

#[tokio::test]
async fn a_review_does_not_stand_for_a_policy() {
    let shown = plan(&[Action::Delete]);
    let gate = gate("policy: {max_destructive: 0}\n", vec![record(&shown)], &[]);
    let refusal = refused(&gate, &shown, &PriorState::default()).await;
    assert_eq!(refusal.error.kind, ErrorKind::Policy);
    assert!(
        refusal.error.message.contains("brought by #7"),
        "{}",
        refusal.error
    );
    assert!(refusal.decisions.stopped.is_empty());
    let rules: Vec<_> = refusal
        .decisions
        .findings
        .iter()
        .map(|f| f.rule.as_str())
        .collect();
    assert!(rules.contains(&"policy.max_destructive"), "{rules:?}");
}

#[tokio::test]
async fn what_becomes_known_later_is_reviewed_too() {
    let secrets = Secrets::new(HashKey::derive("k"));
    let shown = plan(&[Action::Create]);
    let past = PriorState::default();
    let stops = "policy: {drift: stop}\n";
    let approved = async |rules| {
        let gate = gate(rules, vec![record(&shown)], &[]);
        decide(&gate, &shown, &past).await.ok().unwrap().late
    };
    let mut stack = approved("").await;
    assert!(stack.resource(late(&shown.resources[0], &secrets)).await.is_ok());
    let unseen = plan(&[Action::Delete]);
    let refusal = stack
        .resource(late(&unseen.resources[0], &secrets))
        .await
        .unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::Unreviewed);
    assert!(
        refusal.message.contains("became known needs a review"),
        "{refusal}"
    );
    assert!(refusal.message.contains("Run the job again"), "{refusal}");
    // Its deletion during the apply was drift.
    assert!(stack.recreate(late(&shown.resources[0], &secrets)).await.is_ok());
    let mut stack = approved(stops).await;
    let refusal = stack
        .recreate(late(&shown.resources[0], &secrets))
        .await
        .unwrap_err();
    assert!(
        refusal.message.contains("disappeared during the apply"),
        "{refusal}"
    );
}

#[tokio::test]
async fn drift_is_restored_by_the_digest_of_the_difference_alone() {
    let secrets = Secrets::new(HashKey::derive("k"));
    let drifted = plan(&[Action::Create]);
    let applied = commit('c');
    let past = PriorState {
        commit: Some(applied.clone()),
        ..PriorState::default()
    };
    let digest = drift::digest(&drift::difference(&drifted), Some(&applied));
    let restoring =
        |approvals: &[Digest]| gate("", vec![record(&drifted)], approvals).for_restoring(approved(&drifted));
    let approval = decide(&restoring(&[digest]), &drifted, &past).await.ok().unwrap();
    assert!(approval.authorization.reconciled);
    assert_eq!(approval.decisions.matched, BTreeSet::from([digest]));

    // A review and the digest of the plan stand for something else.
    let refusal = refused(&restoring(&[drifted.digest]), &drifted, &past).await;
    assert_eq!(refusal.error.kind, ErrorKind::Unreviewed);
    assert!(refusal.error.hints.join("\n").contains(&digest.to_string()));
    assert!(refusal.decisions.matched.is_empty());

    // What the check did not show is not restored, though it is in the plan of the apply.
    let more = plan(&[Action::Create, Action::Update]);
    let refusal = refused(&restoring(&[digest]), &more, &past).await;
    assert_eq!(refusal.error.kind, ErrorKind::Unreviewed);
    assert!(
        refusal.error.hints[0].contains("drift check again"),
        "{:?}",
        refusal.error
    );

    // Where nothing differs nothing is approved, also not later.
    let calm = plan(&[]);
    let mut approval = decide(&restoring(&[digest]), &calm, &past).await.ok().unwrap();
    assert!(!approval.authorization.reconciled);
    let appeared = late(&drifted.resources[0], &secrets);
    assert_eq!(
        approval.late.resource(appeared).await.unwrap_err().kind,
        ErrorKind::Unreviewed
    );
    assert!(approval.late.recreate(appeared).await.is_err());
}

#[tokio::test]
async fn a_value_that_changed_after_the_check_is_not_restored() {
    let applied = commit('c');
    let past = PriorState {
        commit: Some(applied.clone()),
        ..PriorState::default()
    };
    let differs = |live: &str| {
        let mut drifted = plan(&[Action::Update]);
        drifted.resources[0].changes = vec![FieldChange {
            path: "/data/value".into(),
            from: Some(live.into()),
            to: Some("one".into()),
            origin: ChangeOrigin::Drift,
        }];
        drifted
    };
    let found = differs("by hand");
    let digest = drift::digest(&found, Some(&applied));
    let restoring = gate("", Vec::new(), &[digest]).for_restoring(approved(&found));
    assert!(decide(&restoring, &found, &past).await.is_ok());
    let refusal = refused(&restoring, &differs("by another hand"), &past).await;
    assert_eq!(refusal.error.kind, ErrorKind::Unreviewed);
    let says = "at /data/value: it changed after the approved difference was planned";
    assert!(refusal.error.message.contains(says), "{:?}", refusal.error);
}
