//! Plans a segment: one module, one `terraform plan`. An item that Terraform refuses is taken out, with what depends on
//! it, and the rest is planned again.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    sync::Arc,
};

use super::{
    Terraform,
    book::Book,
    drafting::{self, Drafts},
    error::TerraformError,
    expression::Translator,
    messages::{Message, plain},
    module,
    presenting::{self, Prepared},
    providers::ProviderRef,
    saved_plan::SavedPlan,
    subject::Subject,
    toolbox::{Installed, Toolbox, Workspace},
};
use crate::{
    model::{ResourceId, value},
    runtime::{Item, Planned, Scope},
};

type Answer = Result<Planned, TerraformError>;

/// What a run of `terraform plan` gives, or the items it refuses.
enum Outcome {
    Planned(Box<(SavedPlan, Workspace, Vec<Message>)>),
    Refused(Vec<(ResourceId, TerraformError)>),
}

/// Plans items, each with its own answer.
pub(super) async fn plan(runtime: &Terraform, scope: &Scope, items: Vec<Item>) -> Vec<Answer> {
    let order: Vec<ResourceId> = items.iter().map(|item| item.id.clone()).collect();
    let mut answers: HashMap<ResourceId, Answer> = HashMap::new();
    if let Err(error) = plan_all(runtime, scope, items, &mut answers).await {
        for id in &order {
            answers.entry(id.clone()).or_insert_with(|| Err(error.clone()));
        }
    }
    order
        .iter()
        .map(|id| {
            answers
                .remove(id)
                .unwrap_or_else(|| Err(TerraformError::Failed(format!("no answer came for `{id}`"))))
        })
        .collect()
}

/// An error here is that of all items which have no answer yet.
async fn plan_all(
    runtime: &Terraform,
    scope: &Scope,
    items: Vec<Item>,
    answers: &mut HashMap<ResourceId, Answer>,
) -> Result<(), TerraformError> {
    let options = &runtime.options;
    let book = Book::open(&scope.data, options.key.as_deref())?;
    let moved = runtime.moved(&scope.stack);
    let drafts = drafting::draft(items, &book, &moved, options);
    let Drafts {
        mut subjects,
        forgotten,
        failed,
        providers,
    } = drafts;
    for (item, reason) in forgotten {
        let planned = presenting::forgotten(&scope.stack, item, reason);
        answers.insert(planned.item.id.clone(), Ok(planned));
    }
    take_out(&mut subjects, failed, answers);
    while !subjects.is_empty() {
        let toolbox = runtime.toolbox().await?;
        let used: BTreeMap<ProviderRef, Vec<String>> = providers
            .iter()
            .filter(|(provider, _)| subjects.iter().any(|s| s.provider == **provider))
            .map(|(provider, hashes)| (provider.clone(), hashes.clone()))
            .collect();
        let installed = toolbox.install(&used, options).await?;
        match run(runtime, toolbox, &installed, &subjects).await? {
            Outcome::Refused(refused) => take_out(&mut subjects, refused, answers),
            Outcome::Planned(made) => {
                let (saved, workspace, log) = *made;
                require_key(runtime, &saved, &subjects)?;
                for subject in &subjects {
                    if let Some(old) = &subject.moved_from {
                        runtime.remember_move(&scope.stack, old, subject.id());
                    }
                }
                let hashes = used
                    .keys()
                    .filter_map(|p| {
                        Some((
                            p.clone(),
                            installed
                                .hashes
                                .get(&toolbox.binary.source_of(&p.source))?
                                .clone(),
                        ))
                    })
                    .collect();
                let segment = presenting::Segment {
                    stack: &scope.stack,
                    saved: &saved,
                    log: &log,
                    book: &book,
                    secrets: &options.secrets,
                };
                let (planned, ready) = segment.present(subjects, runtime.next_token());
                runtime.keep(Prepared {
                    stack: scope.stack.clone(),
                    workspace,
                    ready,
                    hashes,
                    token: planned.first().map(presenting::token_of).unwrap_or_default(),
                });
                answers.extend(planned.into_iter().map(|p| (p.item.id.clone(), Ok(p))));
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn run(
    runtime: &Terraform,
    toolbox: &Toolbox,
    installed: &Arc<Installed>,
    subjects: &[Subject],
) -> Result<Outcome, TerraformError> {
    let options = &runtime.options;
    let module = match module::build(subjects, &toolbox.binary) {
        Ok(module) => module,
        Err(failed) => return Ok(Outcome::Refused(failed)),
    };
    let workspace = toolbox.workspace(installed, &module)?;
    let _turn = toolbox.processes.acquire().await;
    let mut out = OsString::from("-out=");
    out.push(workspace.plan.path());
    let mut args: Vec<OsString> = ["-json", "-input=false", "-lock=false", "-no-color"]
        .map(OsString::from)
        .to_vec();
    args.push(format!("-parallelism={}", options.parallelism).into());
    args.push(out);
    let output = workspace.start("plan", args)?.finish(options.deadline).await?;
    let log: Vec<Message> = output
        .lines
        .iter()
        .filter_map(|line| Message::read(line))
        .collect();
    if output.code != Some(0) {
        return refused(runtime, subjects, &log, &output.stderr);
    }
    let args = [OsString::from("-json"), workspace.plan.path().into_os_string()];
    let shown = workspace.start("show", args)?.finish(options.deadline).await?;
    if shown.code != Some(0) {
        let why = plain(&options.secrets, &shown.stderr);
        return Err(TerraformError::Answer { step: "show", why });
    }
    let saved = SavedPlan::read(&shown.lines.concat())?;
    Ok(Outcome::Planned(Box::new((saved, workspace, log))))
}

/// Finds whose fault it was. What is nobody's is everybody's.
fn refused(
    runtime: &Terraform,
    subjects: &[Subject],
    log: &[Message],
    stderr: &str,
) -> Result<Outcome, TerraformError> {
    let secrets = &runtime.options.secrets;
    let errors: Vec<_> = log
        .iter()
        .filter_map(|message| message.diagnostic.as_ref())
        .filter(|diagnostic| diagnostic.is_error())
        .collect();
    let mut refused: Vec<(ResourceId, TerraformError)> = Vec::new();
    for diagnostic in &errors {
        let about = diagnostic.about();
        let subject = subjects
            .iter()
            .find(|s| about == Some(s.address.to_string().as_str()));
        if let Some(subject) = subject
            && !refused.iter().any(|(id, _)| id == subject.id())
        {
            refused.push((subject.id().clone(), diagnostic.of(subject.id(), secrets)));
        }
    }
    if !refused.is_empty() {
        return Ok(Outcome::Refused(refused));
    }
    let text = match errors.first() {
        Some(diagnostic) => {
            let id = subjects[0].id().clone();
            // A provider's own configuration: said once for each of the items that need it.
            if diagnostic.about().is_none() && subjects.len() == 1 {
                return Ok(Outcome::Refused(vec![(id.clone(), diagnostic.of(&id, secrets))]));
            }
            return Ok(Outcome::Refused(
                subjects
                    .iter()
                    .map(|s| (s.id().clone(), diagnostic.of(s.id(), secrets)))
                    .collect(),
            ));
        }
        None => plain(secrets, stderr),
    };
    Err(TerraformError::Failed(text))
}

/// Takes failed subjects out, and those that need them.
fn take_out(
    subjects: &mut Vec<Subject>,
    failed: Vec<(ResourceId, TerraformError)>,
    answers: &mut HashMap<ResourceId, Answer>,
) {
    let addresses: HashMap<_, _> = subjects
        .iter()
        .map(|s| (s.id().clone(), s.address.clone()))
        .collect();
    let mut gone: Vec<ResourceId> = failed.iter().map(|(id, _)| id.clone()).collect();
    answers.extend(failed.into_iter().map(|(id, error)| (id, Err(error))));
    subjects.retain(|s| !gone.contains(s.id()));
    loop {
        let mut more = Vec::new();
        for subject in subjects.iter() {
            let Some(desired) = &subject.item.desired else {
                continue;
            };
            let mut needs = desired.depends_on.clone();
            let mut known = addresses.clone();
            for id in &gone {
                // Only its id counts here.
                known.entry(id.clone()).or_insert_with(|| subject.address.clone());
            }
            let translator = Translator {
                id: subject.id(),
                addresses: &known,
            };
            for value in desired.attributes.values() {
                translator.targets(value, &mut needs);
            }
            if let Some(needed) = needs.iter().find(|id| gone.contains(id)) {
                let error = TerraformError::Needs {
                    id: subject.id().clone(),
                    needs: needed.clone(),
                };
                more.push((subject.id().clone(), error));
            }
        }
        if more.is_empty() {
            return;
        }
        for (id, error) in more {
            subjects.retain(|s| *s.id() != id);
            gone.push(id.clone());
            answers.insert(id, Err(error));
        }
    }
}

/// Without a key nothing sensitive may come into a state.
fn require_key(runtime: &Terraform, saved: &SavedPlan, subjects: &[Subject]) -> Result<(), TerraformError> {
    if runtime.options.key.is_some() {
        return Ok(());
    }
    let secrets = &runtime.options.secrets;
    let holds_secret = |subject: &Subject| {
        let desired = subject.item.desired.as_ref();
        desired.is_some_and(|d| {
            let attributes = serde_json::Value::Object(d.attributes.clone());
            secrets.mask_value(&attributes) != attributes || secrets.mask_value(&subject.meta) != subject.meta
        })
    };
    let sensitive = subjects
        .iter()
        .find(|s| holds_secret(s) || s.holding.as_ref().is_some_and(|h| h.is_sensitive()));
    if sensitive.is_some() || saved.is_sensitive() {
        return Err(TerraformError::Unencrypted {
            id: sensitive.map(|s| s.id().clone()),
        });
    }
    Ok(())
}

/// Whether an item still waits for values of others: its plan is only a picture.
pub(super) fn is_provisional(item: &Item) -> bool {
    item.desired
        .as_ref()
        .is_some_and(|d| d.attributes.values().any(value::holds_unknown))
}
