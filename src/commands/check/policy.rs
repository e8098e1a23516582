//! Evaluates the policy sets of the repository on Specs alone, without a cluster: each resource counts as created. Also
//! runs the tests of the sets.

use konverge_base::model::{
    RepoPath,
    lint::{Diagnostic, FindingPlace, LintRule, LintSeverity},
    policy_finding::{Enforcement, PolicyFinding},
    spec::Spec,
    stack::Stack,
};
use konverge_run::{OpenRevision, spec_policies::SpecPolicies};
use konverge_secrets::Secrets;

/// Returns the findings for the Specs, and the tests that fail.
pub(super) async fn check(
    workspace: &OpenRevision,
    compiled: &[(&Stack, Spec)],
    secrets: &Secrets,
) -> Vec<Diagnostic> {
    let policies = SpecPolicies::load(workspace, secrets);
    let mut found = Vec::new();
    for (set, config) in policies.sets.iter().zip(&workspace.config.policy.sets) {
        for test in policies.evaluator.failed_tests(set, &config.path).await {
            let file = RepoPath::normalize(&test.file).unwrap_or_else(RepoPath::root);
            let message = format!("policy set `{}`: {}: {}", set.name(), test.name, test.why);
            found.push(Diagnostic::new(&file, LintRule::Policy, &message));
        }
    }
    for (stack, spec) in compiled.iter().filter(|_| !policies.sets.is_empty()) {
        // An unreadable set is already reported once, above.
        let findings = policies.findings(stack, spec).await.into_iter();
        let findings = findings.filter(|finding| !finding.rule.ends_with("/load"));
        found.extend(findings.filter_map(|finding| remark(stack, &finding, secrets)));
    }
    found
}

/// Returns a finding as a diagnostic at the stack's file; `None` if the rule is satisfied or cannot decide yet.
fn remark(stack: &Stack, finding: &PolicyFinding, secrets: &Secrets) -> Option<Diagnostic> {
    let severity = match finding.verdict {
        Enforcement::Deny => LintSeverity::Error,
        Enforcement::Warn | Enforcement::Undecided => LintSeverity::Warning,
        Enforcement::Pass => return None,
    };
    let place = finding.place.as_ref().and_then(|place| place.resource.as_ref());
    let resource = place.map_or(String::new(), |id| format!(" {id}:"));
    let message = format!("{}:{resource} {}", finding.rule, finding.message);
    let found = Diagnostic::new(&stack.manifest, LintRule::Policy, &secrets.mask(&message));
    let mut found = found.of_stack(&stack.id);
    found.severity = severity;
    found.hint.clone_from(&finding.hint);
    let place = finding.place.as_ref();
    found.finding = Some(FindingPlace {
        rule: finding.rule.clone(),
        resource: place.and_then(|place| place.resource.clone()),
        path: place.and_then(|place| place.path.clone()),
    });
    Some(found)
}
