//! What rules are evaluated on: objects that are created.

use std::{fs, path::PathBuf};

use jiff::Timestamp;
use konverge_base::model::{
    RepoPath, StackId,
    plan::{Action, Basis, ChangeOrigin, FieldChange, ResourcePlan, StackPlan},
    plan_document::StackDocument,
    policy_finding::PolicyFinding,
    spec::RuntimeKind,
};
use konverge_config::Config;
use konverge_policy_sets::{self as policy_sets, NoOutcomes, PolicyFile, PolicySet, PolicySets, RuleOutcome};
use konverge_secrets::{HashKey, Secrets};
use serde_json::Value;

/// A folder of `tests/fixtures/policy`.
pub fn fixtures(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/policy")
        .join(name)
}

/// The objects of a file.
pub fn objects(text: &str) -> Vec<Value> {
    konverge_base::yaml::documents(text).unwrap()
}

/// The files of a folder; none if it is missing.
pub fn files(folder: &std::path::Path) -> Vec<PolicyFile> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| PolicyFile {
        path: path.file_name().unwrap().to_string_lossy().into_owned(),
        text: fs::read_to_string(&path).unwrap(),
    };
    paths.into_iter().map(read).collect()
}

/// A set with these settings.
pub fn set(settings: &str, files: &[PolicyFile], data: &[PolicyFile]) -> PolicySet {
    let config = Config::parse(&format!("policy: {{sets: [{{name: s, path: p, {settings}}}]}}\n")).unwrap();
    PolicySet::load(&config.policy.sets[0], files, data)
}

/// What the rules of a set find in this process, without limits: an endless rule never returns.
pub fn outcomes(set: &PolicySet, document: &StackDocument) -> Result<Vec<RuleOutcome>, NoOutcomes> {
    let source = set.source().map_err(Clone::clone);
    let rules = source.and_then(|source| source.parse());
    let rules = rules.map_err(NoOutcomes::Unreadable)?;
    Ok(rules.outcomes(document))
}

/// The findings of a set, found so.
pub fn findings(set: &PolicySet, document: &StackDocument, secrets: &Secrets) -> Vec<PolicyFinding> {
    set.findings_from(document, secrets, outcomes(set, document))
}

/// The findings of all sets, found so.
pub fn all_findings(
    sets: &PolicySets,
    document: &StackDocument,
    now: Timestamp,
    secrets: &Secrets,
) -> Vec<PolicyFinding> {
    let outcomes = sets.about(document).map(|set| outcomes(set, document));
    sets.findings_from(document, now, secrets, outcomes.collect())
}

/// Secrets of which none is known.
pub fn secrets() -> Secrets {
    Secrets::new(HashKey::derive("k"))
}

/// The document of a stack that creates objects.
pub fn created(objects: &[Value]) -> StackDocument {
    let stack: StackId = "oracle/dev".parse().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let plans = objects.iter().map(|object| {
        let metadata = &object["metadata"];
        let parts = [
            text(&object["apiVersion"]),
            text(&object["kind"]),
            text(&metadata["namespace"]),
            text(&metadata["name"]),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let change = FieldChange {
            path: "".into(),
            from: None,
            to: Some(object.clone()),
            origin: ChangeOrigin::Change,
        };
        ResourcePlan::new(
            &stack,
            parts.join(":").parse().unwrap(),
            RuntimeKind::Kubernetes,
            Action::Create,
            vec![change],
        )
    });
    let plan = StackPlan::new(RepoPath::root(), stack.clone(), Basis::Live, plans.collect());
    policy_sets::document(&plan, Vec::new())
}
