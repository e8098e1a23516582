//! Looks at what stands outside: a refresh-only plan of what the state holds. Nothing is written.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
};

use super::{
    Terraform,
    address::Addresses,
    book::Book,
    error::TerraformError,
    messages::{Message, plain},
    module,
    saved_plan::SavedPlan,
    subject::Subject,
};
use crate::runtime::{Item, Observed, Scope};

/// The objects as a refresh finds them; `None` for what is not held or is gone.
pub(super) async fn observe(
    runtime: &Terraform,
    scope: &Scope,
    items: &[Item],
) -> Result<Vec<Observed>, TerraformError> {
    let options = &runtime.options;
    let book = Book::open(&scope.data, options.key.as_deref())?;
    let mut addresses = Addresses::default();
    let mut providers = BTreeMap::new();
    let mut subjects = Vec::new();
    for item in items {
        let Some(holding) = book.resources.get(&item.id) else {
            continue;
        };
        let provider = holding.provider();
        if !provider.is_builtin() {
            let listed = super::providers::check_allowed(&options.providers, &item.id, &provider)?;
            let hashes = if listed.is_empty() {
                book.hashes_of(&provider)
            } else {
                listed
            };
            providers.insert(provider.clone(), hashes.to_vec());
        }
        subjects.push(Subject {
            item: Item {
                desired: None,
                ..item.clone()
            },
            address: addresses.take(holding.address.clone(), &item.id),
            provider,
            meta: holding.meta.clone(),
            holding: Some(holding.clone()),
            moved_from: None,
        });
    }
    let mut live = HashMap::new();
    if !subjects.is_empty() {
        let saved = refresh(runtime, &subjects, &providers).await?;
        let refreshed = saved.refreshed();
        for subject in &subjects {
            if let Some(found) = refreshed.get(subject.address.to_string().as_str()) {
                super::masking::shown(
                    found.values,
                    &serde_json::Value::Null,
                    found.sensitive,
                    &options.secrets,
                );
                live.insert(subject.id().clone(), found.values.clone());
            }
        }
    }
    Ok(items
        .iter()
        .map(|item| Observed {
            id: item.id.clone(),
            live: live.remove(&item.id),
        })
        .collect())
}

async fn refresh(
    runtime: &Terraform,
    subjects: &[Subject],
    providers: &BTreeMap<super::providers::ProviderRef, Vec<String>>,
) -> Result<SavedPlan, TerraformError> {
    let options = &runtime.options;
    let toolbox = runtime.toolbox().await?;
    let installed = toolbox.install(providers, options).await?;
    let module = module::build(subjects, &toolbox.binary).map_err(|mut failed| failed.remove(0).1)?;
    let workspace = toolbox.workspace(&installed, &module)?;
    let _turn = toolbox.processes.acquire().await;
    let mut out = OsString::from("-out=");
    out.push(workspace.plan.path());
    let mut args: Vec<OsString> = [
        "-refresh-only",
        "-json",
        "-input=false",
        "-lock=false",
        "-no-color",
    ]
    .map(OsString::from)
    .to_vec();
    args.push(format!("-parallelism={}", options.parallelism).into());
    args.push(out);
    let output = workspace.start("plan", args)?.finish(options.deadline).await?;
    if output.code != Some(0) {
        let errors = output
            .lines
            .iter()
            .filter_map(|line| Message::read(line)?.diagnostic);
        let first = errors.into_iter().find(|d| d.is_error());
        let subject = first.as_ref().and_then(|d| {
            subjects
                .iter()
                .find(|s| d.about() == Some(s.address.to_string().as_str()))
        });
        return Err(match (first, subject) {
            (Some(diagnostic), Some(subject)) => diagnostic.of(subject.id(), &options.secrets),
            (Some(diagnostic), None) => TerraformError::Failed(diagnostic.text(&options.secrets)),
            (None, _) => TerraformError::Failed(plain(&options.secrets, &output.stderr)),
        });
    }
    let args = [OsString::from("-json"), workspace.plan.path().into_os_string()];
    let shown = workspace.start("show", args)?.finish(options.deadline).await?;
    if shown.code != Some(0) {
        let why = plain(&options.secrets, &shown.stderr);
        return Err(TerraformError::Answer { step: "show", why });
    }
    SavedPlan::read(&shown.lines.concat())
}
