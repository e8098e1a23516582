//! The review gate: whether a plan may be applied, or drift restored, by reviews, approvals by digest, and policies.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use crate::policy::{
    policy_check::{Agreed, GivenDigests, PolicyCheck},
    policy_refusal,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, Digest, StackId,
        authorization::Authorization,
        plan::StackPlan,
        review::{ReviewRecord, ReviewUnit, stack_units},
    },
};
use konverge_config::DriftPolicy;
use konverge_engine::LatePlan;
use konverge_policy::{Objection, ReviewedUnits, Unreviewed};
use konverge_run::{
    apply::{
        ApprovedPlan, Approver, Decisions, LateApprover, PriorState, ProposedPlan, Refusal, StoppedPlan,
    },
    drift,
    stack_policy_sets::ActiveSets,
};

/// Approves what reviewers saw.
pub(crate) struct ReviewGate {
    policy_check: PolicyCheck,
    records: Vec<ReviewRecord>,
    approvals: BTreeSet<Digest>,
    /// Set if the plans restore drift, whose digests are approved. For each stack the commit before the applied one,
    /// if it is recorded.
    restores: Option<BTreeMap<StackId, Option<CommitId>>>,
}

impl ReviewGate {
    /// Approves by these review records of merged pull requests, or by the given digests.
    pub(crate) fn new(
        policy_check: PolicyCheck,
        records: Vec<ReviewRecord>,
        approvals: BTreeSet<Digest>,
    ) -> Self {
        Self {
            policy_check,
            records,
            approvals,
            restores: None,
        }
    }

    /// To restore what was applied last: a digest stands for a difference, and nothing else is restored. `before` has
    /// for each stack the commit before the applied one, if it is recorded: who brought the applied one does not
    /// approve it.
    #[must_use]
    pub(crate) fn for_restoring(self, before: BTreeMap<StackId, Option<CommitId>>) -> Self {
        Self {
            restores: Some(before),
            ..self
        }
    }

    /// The given ones of these digests.
    fn given(&self, digests: impl IntoIterator<Item = Digest>) -> impl Iterator<Item = Digest> {
        let digests = digests.into_iter();
        digests.filter(|digest| self.approvals.contains(digest))
    }

    /// The pull requests whose records count.
    pub(crate) fn pull_requests(&self) -> BTreeSet<u64> {
        self.records.iter().map(|record| record.pull_request).collect()
    }
}

/// An approved stack: what holds for its resources while it is applied.
struct ApprovedStack {
    stack: StackId,
    reviewed: ReviewedUnits,
    drift: DriftPolicy,
    restores: bool,
    /// As they were when the plan was approved.
    sets: ActiveSets,
}

impl ApprovedStack {
    /// Refuses what is objected to. `why` says why it was not part of the approved plan.
    fn check(&self, why: &str, objections: &[Unreviewed]) -> Result<(), UserError> {
        if objections.is_empty() {
            return Ok(());
        }
        let next = match self.restores {
            false => "Run it again: it then shows the remaining plan with a digest to approve",
            true => "The drift issue shows the rest with a digest to approve",
        };
        let what = format!("{} {why}. Completed changes are recorded. {next}", self.stack);
        Err(refusal(&what, &describe_all(objections, self.restores)))
    }
}

#[async_trait]
impl LateApprover for ApprovedStack {
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        let why = "was stopped because a value that became known needs a review";
        let objections = self
            .reviewed
            .resource_objections(&self.stack, late.shown, self.drift);
        self.check(why, &objections)?;
        self.sets.check(late).await
    }

    async fn recreate(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        let why = "was stopped because a resource disappeared during the apply";
        let objections = ReviewedUnits::recreation_objections(&self.stack, late.shown, self.drift);
        self.check(why, &objections)?;
        self.sets.check(late).await
    }
}

fn refusal(what: &str, lines: &[String]) -> UserError {
    const SHOWN: usize = 5;
    let more = lines.len().saturating_sub(SHOWN);
    let lines = &lines[..lines.len() - more];
    let more = if more > 0 {
        format!("\nand {more} more")
    } else {
        String::new()
    };
    UserError::new(
        ErrorKind::Unreviewed,
        format!("{what}:\n{}{more}", lines.join("\n")),
    )
}

/// The error for drift that is not the approved one: `found`, with its digest.
fn another_difference(found: &StackPlan, digest: Digest) -> UserError {
    let stack = &found.id;
    if found.summary.changed() == 0 {
        return UserError::new(
            ErrorKind::Unreviewed,
            format!("{stack} does not differ from what was applied any more: nothing was restored"),
        );
    }
    let what = format!("{stack} was not restored: it does not differ as the given digest says, but so");
    let lines: Vec<_> = stack_units(found).iter().map(describe_unit).collect();
    refusal(&what, &lines)
        .hint("look at the difference: the drift issue shows it now")
        .hint(format!(
            "to restore exactly this, start the workflow manually with `approve: {digest}`"
        ))
}

/// Adds the pull requests whose changes a rule stops to its error.
fn naming(mut refusal: UserError, pulls: &[(u64, CommitId)]) -> UserError {
    let numbers: Vec<_> = pulls.iter().map(|(number, _)| format!("#{number}")).collect();
    if !numbers.is_empty() {
        refusal
            .message
            .push_str(&format!("\nbrought by {}", numbers.join(", ")));
    }
    refusal
}

fn describe(unreviewed: &Unreviewed, restores: bool) -> String {
    let Unreviewed { unit, objection } = unreviewed;
    let why = match objection {
        Objection::Unseen => "no merged pull request showed it",
        Objection::BaseChanged => {
            "the live value is neither the reviewed one nor the one that Konverge wrote last"
        }
        Objection::OnlySpecs => {
            "it was reviewed without a cluster (Spec compared with Spec), and this stack was never applied"
        }
        Objection::Drifted if restores => "it changed after the approved difference was planned",
        Objection::Drifted => {
            "it was changed outside Konverge since the last apply, and policy.drift is `stop`"
        }
    };
    format!("{}: {why}", describe_unit(unit))
}

fn describe_all(objections: &[Unreviewed], restores: bool) -> Vec<String> {
    objections.iter().map(|one| describe(one, restores)).collect()
}

/// `update v1:ConfigMap:shop:web at /data/value`.
fn describe_unit(unit: &ReviewUnit) -> String {
    let place = if unit.path.is_empty() {
        String::new()
    } else {
        format!(" at {}", unit.path)
    };
    let action = serde_json::to_value(unit.action).ok();
    let action = action
        .as_ref()
        .and_then(|action| action.as_str())
        .unwrap_or_default()
        .to_owned();
    format!("{action} {}{place}", unit.resource)
}

#[async_trait]
impl Approver for ReviewGate {
    async fn stack(&self, proposed: &ProposedPlan<'_>, past: &PriorState) -> Result<ApprovedPlan, Refusal> {
        let Some(before) = &self.restores else {
            let covered = Agreed {
                since: past.commit.as_ref(),
                until: None,
            };
            return self.authorize(proposed, past, covered).await;
        };
        if proposed.plan.summary.changed() == 0 {
            return Ok(ApprovedPlan::by(NothingToRestore));
        }
        let found = drift::difference(proposed.plan);
        let digest = drift::digest(&found, past.commit.as_ref());
        if !self.approvals.contains(&digest) {
            return Err(another_difference(&found, digest).into());
        }
        // From here on the digest of the difference is the one of the plan, in hints too.
        let plan = StackPlan {
            digest,
            ..proposed.plan.clone()
        };
        let proposed = ProposedPlan {
            plan: &plan,
            document: proposed.document,
        };
        let covered = Agreed {
            since: before.get(&plan.id).and_then(Option::as_ref),
            until: past.commit.as_ref(),
        };
        let mut approval = self.authorize(&proposed, past, covered).await?;
        approval.authorization.reconciled = true;
        Ok(approval)
    }
}

impl ReviewGate {
    /// Checks a plan against the reviews, the given digests and the policies. `covered` are the commits that its digest
    /// covers.
    async fn authorize(
        &self,
        proposed: &ProposedPlan<'_>,
        past: &PriorState,
        covered: Agreed<'_>,
    ) -> Result<ApprovedPlan, Refusal> {
        let plan = proposed.plan;
        let records: Vec<_> = self
            .records
            .iter()
            .filter(|record| !past.used.contains(&record.pull_request))
            .collect();
        let pulls: Vec<_> = records
            .iter()
            .filter(|record| {
                record
                    .stacks
                    .iter()
                    .any(|s| s.id == plan.id && !s.units.is_empty())
            })
            .map(|record| (record.pull_request, record.head.clone()))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let mut reviewed = match past.is_new {
            true => ReviewedUnits::from_unrecorded(&plan.id, records.iter().copied()),
            false => ReviewedUnits::from_records(&plan.id, records.iter().copied()),
        }
        .with_last_writes(past.last_writes.clone())
        .following_rotation(self.policy_check.follows_rotation());
        let mut decisions = Decisions::default();
        let agreed = self.approvals.contains(&plan.digest).then_some(covered);
        if agreed.is_some() {
            reviewed = reviewed.with_agreed(plan);
            decisions.matched.insert(plan.digest);
        }
        let drift = match &self.restores {
            None => match self.policy_check.drift(plan, &pulls, agreed).await {
                Ok(drift) => drift,
                Err(error) => return Err(decisions.refuse(error)),
            },
            // Nothing else is restored than the approved difference.
            Some(_) => DriftPolicy::Stop,
        };
        let objections = reviewed.objections(plan, drift);
        if !objections.is_empty() {
            let error = self.unreviewed(plan, &objections);
            decisions.stopped.push(StoppedPlan {
                plan: plan.clone(),
                units: objections.into_iter().map(|objection| objection.unit).collect(),
            });
            return Err(decisions.refuse(error));
        }
        let given = GivenDigests {
            digests: &self.approvals,
            records: &records,
            covered,
            earlier: match &self.restores {
                None => &[],
                Some(_) => &past.overridden,
            },
        };
        let found = self
            .policy_check
            .findings_with_sets(proposed, &pulls, agreed, given)
            .await;
        let (findings, sets) = match found {
            Ok(found) => found,
            Err(error) => return Err(decisions.refuse(error)),
        };
        let places = findings.iter().filter_map(|finding| finding.place.as_ref());
        decisions
            .matched
            .extend(self.given(places.map(|place| place.digest)));
        let refusal = policy_refusal::refusal(plan, &findings);
        decisions.findings.extend(findings);
        if let Some(refusal) = refusal {
            return Err(decisions.refuse(naming(refusal, &pulls)));
        }
        Ok(ApprovedPlan {
            authorization: Authorization {
                overrides: sets.overridden().to_vec(),
                findings: sets.recorded(),
                ..self.policy_check.grounds(plan, &pulls, agreed).await
            },
            decisions,
            late: Box::new(ApprovedStack {
                stack: plan.id.clone(),
                reviewed,
                drift,
                restores: self.restores.is_some(),
                sets,
            }),
        })
    }

    /// The error for a plan with unreviewed parts.
    fn unreviewed(&self, plan: &StackPlan, objections: &[Unreviewed]) -> UserError {
        let what = format!("{} was stopped before anything was changed", plan.id);
        refusal(&what, &describe_all(objections, self.restores.is_some()))
            .hint("open a pull request whose preview shows it, or revert the change that brought it")
            .hint(format!(
                "to approve exactly this plan, start the workflow manually with `approve: {}`",
                plan.digest
            ))
    }
}

/// A stack that does not differ from what was applied: no plan of it was approved, so nothing of it is applied.
struct NothingToRestore;

#[async_trait]
impl LateApprover for NothingToRestore {
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        Err(UserError::new(
            ErrorKind::Unreviewed,
            format!(
                "no plan with {} was approved, so it is not applied",
                late.shown.id
            ),
        )
        .hint("run it again: the whole stack is planned before anything is applied"))
    }

    async fn recreate(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        self.resource(late).await
    }
}

#[cfg(test)]
mod tests {
    use konverge_base::{
        model::{
            RepoPath,
            plan::{Action, Basis},
            plan_document::{DocumentStack, OtherNames, StackDocument},
            review::ReviewedStack,
        },
        secrets::{HashKey, Secrets},
    };

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

    fn late<'a>(
        resource: &'a konverge_base::model::plan::ResourcePlan,
        secrets: &'a Secrets,
    ) -> LatePlan<'a> {
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
        assert!(refusal.message.contains("Run it again"), "{refusal}");
        // Whoever deleted it during the apply made drift.
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
        let restoring = |approvals: &[Digest]| {
            let before = BTreeMap::from([(drifted.id.clone(), Some(commit('e')))]);
            gate("", vec![record(&drifted)], approvals).for_restoring(before)
        };
        let approval = decide(&restoring(&[digest]), &drifted, &past).await.ok().unwrap();
        assert!(approval.authorization.reconciled);
        assert_eq!(approval.decisions.matched, BTreeSet::from([digest]));

        // A review and the digest of the plan stand for something else.
        let refusal = refused(&restoring(&[drifted.digest]), &drifted, &past).await;
        assert_eq!(refusal.error.kind, ErrorKind::Unreviewed);
        assert!(refusal.error.hints.join("\n").contains(&digest.to_string()));
        assert!(refusal.decisions.matched.is_empty());

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
}
