//! The review gate: whether a plan may be applied, or drift restored, by reviews, approvals by digest, and policies.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;

use super::{
    policy_check::{Agreed, GivenDigests, PolicyCheck},
    policy_refusal,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, Digest, StackId,
        authorization::Authorization,
        plan::StackPlan,
        policy_finding::PolicyFinding,
        review::{ReviewRecord, ReviewUnit, stack_units},
    },
};
use konverge_config::DriftPolicy;
use konverge_engine::LatePlan;
use konverge_policy::{Objection, ReviewedUnits, Unreviewed};
use konverge_run::{
    apply::{Approver, PriorState, ProposedPlan},
    drift,
    stack_policy_sets::ActiveSets,
};

/// Approves what reviewers saw.
pub(super) struct ReviewGate {
    guardrails: PolicyCheck,
    records: Vec<ReviewRecord>,
    approvals: BTreeSet<Digest>,
    /// Set if the plans restore drift, whose digests are approved. For each stack the commit before the applied one,
    /// if it is recorded.
    restores: Option<BTreeMap<StackId, Option<CommitId>>>,
    /// The given digests that stood for a plan or a finding.
    matched: Mutex<BTreeSet<Digest>>,
    current: Mutex<BTreeMap<StackId, Approved>>,
    stopped: Mutex<Vec<(StackPlan, Vec<ReviewUnit>)>>,
    /// What the policies found in the plans that were checked.
    found: Mutex<BTreeSet<PolicyFinding>>,
}

/// What holds for the resources of a stack while it is applied.
struct Approved {
    reviewed: ReviewedUnits,
    drift: DriftPolicy,
    /// Set when the plan was approved.
    sets: Option<SharedSets>,
}

impl ReviewGate {
    /// Approves by these review records of merged pull requests, or by the given digests.
    pub fn new(guardrails: PolicyCheck, records: Vec<ReviewRecord>, approvals: BTreeSet<Digest>) -> Self {
        Self {
            guardrails,
            records,
            approvals,
            restores: None,
            matched: Mutex::default(),
            current: Mutex::default(),
            stopped: Mutex::default(),
            found: Mutex::default(),
        }
    }

    /// To restore what was applied last: a digest stands for a difference, and nothing else is restored. `before` has
    /// for each stack the commit before the applied one, if it is recorded: who brought the applied one does not
    /// approve it.
    #[must_use]
    pub fn for_restoring(self, before: BTreeMap<StackId, Option<CommitId>>) -> Self {
        Self {
            restores: Some(before),
            ..self
        }
    }

    /// The given digests that stood for a plan or a finding.
    pub fn matched(&self) -> BTreeSet<Digest> {
        self.matched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note_matches(&self, digests: impl Iterator<Item = Digest>) {
        let given = digests.filter(|digest| self.approvals.contains(digest));
        self.matched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(given);
    }

    /// The pull requests whose records count.
    pub fn pull_requests(&self) -> BTreeSet<u64> {
        self.records.iter().map(|record| record.pull_request).collect()
    }

    /// Keeps the sets for values that become known later.
    fn store_sets(&self, stack: &StackId, sets: ActiveSets) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(approved) = current.get_mut(stack) {
            approved.sets = Some(Arc::new(tokio::sync::Mutex::new(sets)));
        }
    }

    /// What the policies found, the strictest first.
    pub fn findings(&self) -> Vec<PolicyFinding> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.iter().cloned().collect()
    }

    /// The plans that were stopped as unreviewed, with their unreviewed parts.
    pub fn stopped_stacks(&self) -> Vec<(StackPlan, Vec<ReviewUnit>)> {
        self.stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
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
    async fn stack(
        &self,
        proposed: &ProposedPlan<'_>,
        past: &PriorState,
    ) -> Result<Authorization, UserError> {
        let Some(before) = &self.restores else {
            let covered = Agreed {
                since: past.commit.as_ref(),
                until: None,
            };
            return self.authorize(proposed, past, covered).await;
        };
        if proposed.plan.summary.changed() == 0 {
            return Ok(Authorization::default());
        }
        let found = drift::difference(proposed.plan);
        let digest = drift::digest(&found, past.commit.as_ref());
        if !self.approvals.contains(&digest) {
            return Err(another_difference(&found, digest));
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
        let authorization = self.authorize(&proposed, past, covered).await?;
        Ok(Authorization {
            reconciled: true,
            ..authorization
        })
    }

    async fn resource(&self, stack: &StackId, late: LatePlan<'_>) -> Result<(), UserError> {
        let why = "was stopped because a value that became known needs a review";
        let objections = |approved: &Approved| {
            let reviewed = &approved.reviewed;
            reviewed.resource_objections(stack, late.shown, approved.drift)
        };
        let sets = self.admit(stack, why, objections)?;
        judge(sets, late).await
    }

    async fn recreate(&self, stack: &StackId, late: LatePlan<'_>) -> Result<(), UserError> {
        let why = "was stopped because a resource disappeared during the apply";
        let objections =
            |approved: &Approved| ReviewedUnits::recreation_objections(stack, late.shown, approved.drift);
        let sets = self.admit(stack, why, objections)?;
        judge(sets, late).await
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
    ) -> Result<Authorization, UserError> {
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
        .following_rotation(self.guardrails.follows_rotation());
        let agreed = self.approvals.contains(&plan.digest).then_some(covered);
        if agreed.is_some() {
            reviewed = reviewed.with_agreed(plan);
            self.note_matches(std::iter::once(plan.digest));
        }
        let drift = match &self.restores {
            None => self.guardrails.drift(plan, &pulls, agreed).await?,
            // Nothing else is restored than the approved difference.
            Some(_) => DriftPolicy::Stop,
        };
        let objections = reviewed.objections(plan, drift);
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(
                plan.id.clone(),
                Approved {
                    reviewed,
                    drift,
                    sets: None,
                },
            );
        if objections.is_empty() {
            let (findings, sets) = self
                .guardrails
                .findings_with_sets(
                    proposed,
                    &pulls,
                    agreed,
                    GivenDigests {
                        digests: &self.approvals,
                        records: &records,
                        covered,
                        earlier: match &self.restores {
                            None => &[],
                            Some(_) => &past.overridden,
                        },
                    },
                )
                .await?;
            let places = findings.iter().filter_map(|finding| finding.place.as_ref());
            self.note_matches(places.map(|place| place.digest));
            let overrides = sets.overridden().to_vec();
            let recorded = sets.recorded();
            self.store_sets(&plan.id, sets);
            self.found
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend(findings.iter().cloned());
            return match policy_refusal::refusal(plan, &findings) {
                Some(refusal) => Err(naming(refusal, &pulls)),
                None => Ok(Authorization {
                    overrides,
                    findings: recorded,
                    ..self.guardrails.grounds(plan, &pulls, agreed).await
                }),
            };
        }
        let units = objections
            .iter()
            .map(|objection| objection.unit.clone())
            .collect();
        self.stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((plan.clone(), units));
        let what = format!("{} was stopped before anything was changed", plan.id);
        Err(refusal(&what, &self.describe(&objections))
            .hint("open a pull request whose preview shows it, or revert the change that brought it")
            .hint(format!(
                "to approve exactly this plan, start the workflow manually with `approve: {}`",
                plan.digest
            )))
    }

    fn describe(&self, objections: &[Unreviewed]) -> Vec<String> {
        let restores = self.restores.is_some();
        objections.iter().map(|one| describe(one, restores)).collect()
    }
}

type SharedSets = Arc<tokio::sync::Mutex<ActiveSets>>;

/// Lets the sets of a stack judge a plan that became known during the apply.
async fn judge(sets: Option<SharedSets>, late: LatePlan<'_>) -> Result<(), UserError> {
    match sets {
        Some(sets) => sets.lock().await.refusal(late).await.map_or(Ok(()), Err),
        None => Ok(()),
    }
}

impl ReviewGate {
    /// Checks that nothing of a resource is objected to, and returns the sets that judge it. `why` says why it was not
    /// part of the approved plan.
    fn admit(
        &self,
        stack: &StackId,
        why: &str,
        objections: impl FnOnce(&Approved) -> Vec<Unreviewed>,
    ) -> Result<Option<SharedSets>, UserError> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(approved) = current.get(stack) else {
            return Err(UserError::new(
                ErrorKind::Unreviewed,
                format!("no plan of {stack} was approved, so nothing of it is applied"),
            )
            .hint("run it again: the whole stack is planned before anything is applied"));
        };
        let objections = objections(approved);
        if objections.is_empty() {
            return Ok(approved.sets.clone());
        }
        let next = match self.restores {
            None => "Run it again: it then shows the remaining plan with a digest to approve",
            Some(_) => "The drift issue shows the rest with a digest to approve",
        };
        let what = format!("{stack} {why}. Completed changes are recorded. {next}");
        Err(refusal(&what, &self.describe(&objections)))
    }
}
