//! The plans of a matrix's jobs as one plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{masked, shards};
use crate::{
    error::{ErrorKind, Failure},
    model::{
        StackId,
        affected::Affected,
        plan::{Plan, StackPlan},
    },
    secrets::Secrets,
};

/// What was gathered.
pub struct Gathered {
    /// Every stack that a job planned, sorted by folder.
    pub plan: Plan,
    /// Nothing: why a stack is affected is known where the shares were made.
    pub affected: Affected,
}

/// Reads every `*.json` below a folder as a plan and joins them. With the file of shares, every stack of it must be there.
///
/// # Errors
/// A file is no plan, two report the same stack, or one is missing.
pub fn run(folder: &Path, shares: Option<&Path>, secrets: &Secrets) -> Result<Gathered, Failure> {
    let mut stacks: BTreeMap<StackId, (StackPlan, PathBuf)> = BTreeMap::new();
    for file in json_files(folder)? {
        for stack in plan_of(&file)?.stacks {
            if let Some((_, other)) = stacks.get(&stack.id) {
                return Err(wrong(
                    &file,
                    format!("`{}` is reported by `{}` too", stack.id, other.display()),
                )
                .hint("every job's plan lies there once: clear the folder of older ones"));
            }
            stacks.insert(stack.id.clone(), (stack, file.clone()));
        }
    }
    if let Some(shares) = shares {
        let missing: BTreeSet<_> = shards::all(shares)?
            .into_iter()
            .filter(|id| !stacks.contains_key(id))
            .map(|id| id.to_string())
            .collect();
        if !missing.is_empty() {
            let missing: Vec<_> = missing.into_iter().collect();
            return Err(wrong(folder, format!("no job reported {}", missing.join(", ")))
                .hint("look at the job that had it: it failed before it printed its plan"));
        }
    }
    let mut stacks: Vec<StackPlan> = stacks.into_values().map(|(stack, _)| stack).collect();
    stacks.sort_by(|a, b| (&a.stack, &a.id).cmp(&(&b.stack, &b.id)));
    let mut plan = Plan { version: 1, stacks };
    masked::plan(&mut plan, secrets);
    Ok(Gathered {
        plan,
        affected: Affected {
            version: 1,
            base: None,
            head: None,
            stacks: Vec::new(),
        },
    })
}

fn plan_of(file: &Path) -> Result<Plan, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| wrong(file, error.to_string()))?;
    let plan: Plan = serde_json::from_str(&text).map_err(|error| {
        wrong(file, format!("this is no plan: {error}"))
            .hint("each job writes one with `konverge preview --output json`")
    })?;
    if plan.version != 1 {
        let what = format!("a plan of version {}, and only 1 is known", plan.version);
        return Err(wrong(file, what));
    }
    Ok(plan)
}

/// Artifacts are downloaded into a folder each: every depth is looked at.
fn json_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|error| {
            wrong(&folder, format!("the folder can not be read: {error}"))
                .hint("`--gather` names the folder into which the jobs' plans were downloaded")
        })?;
        for entry in entries {
            let entry = entry.map_err(|error| wrong(&folder, error.to_string()))?;
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() && path.extension().is_some_and(|ext| ext == "json") => {
                    files.push(path);
                }
                _ => {}
            }
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(wrong(folder, "there is no `*.json` in it".to_owned())
            .hint("each job writes one with `konverge preview --output json`"));
    }
    Ok(files)
}

fn wrong(place: &Path, what: String) -> Failure {
    Failure::new(ErrorKind::Usage, what).at(place.display().to_string(), None, None)
}
