//! Affected stacks shared out over jobs: GitHub's matrix, made once, so that every job sees the same shares.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Run, caches};
use crate::{
    error::{ErrorKind, Failure},
    model::{Digest, StackId, affected::Affected},
};

/// GitHub runs at most so many jobs of one matrix.
pub const MAX_SHARDS: usize = 256;

/// What GitHub's `strategy.matrix` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    /// One entry a job; none if nothing is affected.
    pub include: Vec<Shard>,
}

/// One job's share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// `<number>/<of>`, from 1.
    pub shard: String,
    /// The stacks' identities as a JSON list in a string: a matrix value must be one.
    pub stacks: String,
}

/// The stacks of one share of a file that `affected --shard-file` wrote: its number, with or without how many there are.
///
/// # Errors
/// The file can not be read, or has no such share.
pub fn share(file: &Path, which: &str) -> Result<Vec<StackId>, Failure> {
    let matrix = read(file)?;
    let is_meant = |shard: &&Shard| {
        let number = shard.shard.split('/').next().unwrap_or_default();
        shard.shard == which || number == which
    };
    let shard = matrix.include.iter().find(is_meant).ok_or_else(|| {
        let there: Vec<_> = matrix.include.iter().map(|shard| shard.shard.as_str()).collect();
        let which = which.escape_debug();
        wrong(
            file,
            format!("there is no share `{which}`; there are: {}", there.join(", ")),
        )
    })?;
    shard.ids(file)
}

/// The stacks of every share of a file.
///
/// # Errors
/// The file can not be read.
pub fn all(file: &Path) -> Result<Vec<StackId>, Failure> {
    let mut all = Vec::new();
    for shard in read(file)?.include {
        all.extend(shard.ids(file)?);
    }
    Ok(all)
}

fn read(file: &Path) -> Result<Matrix, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| wrong(file, format!("the shares can not be read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| wrong(file, format!("these are no shares: {error}")))
}

fn wrong(file: &Path, what: String) -> Failure {
    Failure::new(ErrorKind::Usage, what)
        .at(file.display().to_string(), None, None)
        .hint("`konverge affected --shards 8 --shard-file FILE` writes it, once for all jobs")
}

impl Shard {
    fn ids(&self, file: &Path) -> Result<Vec<StackId>, Failure> {
        serde_json::from_str(&self.stacks)
            .map_err(|error| wrong(file, format!("the share `{}`: {error}", self.shard)))
    }
}

/// Milliseconds that a stack's compilation took when it was last measured on this machine or cache.
pub struct Costs {
    known: BTreeMap<String, u64>,
    path: Option<PathBuf>,
}

impl Costs {
    /// Loads what earlier runs measured of a repository; empty if nothing or unreadable.
    pub fn load(run: &Run, repository: &std::path::Path) -> Self {
        let key = Digest::of_bytes(repository.as_os_str().as_encoded_bytes()).short();
        let path =
            caches::believed(run).map(|folder| folder.join("affected").join(format!("{key}.costs.json")));
        let text = path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let known = text
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        Self { known, path }
    }

    /// Takes in measurements and keeps them; a failure to write loses only balance.
    pub fn learn(&mut self, measured: &[(StackId, u64)]) {
        if measured.is_empty() {
            return;
        }
        self.known
            .extend(measured.iter().map(|(id, cost)| (id.to_string(), *cost)));
        let Some(path) = &self.path else {
            return;
        };
        let text = serde_json::to_string(&self.known).expect("text and numbers");
        let folder = path.parent().expect("made of a folder and a name");
        let written = std::fs::create_dir_all(folder)
            .and_then(|()| tempfile::NamedTempFile::new_in(folder))
            .and_then(|mut file| {
                std::io::Write::write_all(&mut file, text.as_bytes())?;
                file.persist(path).map_err(|error| error.error)
            });
        if let Err(error) = written {
            tracing::debug!("measured costs were not kept: {error}");
        }
    }

    /// A stack's cost; an unknown one counts as the mean of the known.
    fn of(&self, id: &StackId) -> u64 {
        let mean = self.known.values().sum::<u64>() / (self.known.len().max(1) as u64);
        self.known.get(id.as_str()).copied().unwrap_or(mean).max(1)
    }
}

/// Shares out: the dearest stack first, always to the job with the least so far. The same input gives the same shares.
///
/// # Errors
/// No job at all, or more than GitHub runs.
pub fn shares(affected: &Affected, shards: usize, costs: &Costs) -> Result<Matrix, Failure> {
    if !(1..=MAX_SHARDS).contains(&shards) {
        return Err(Failure::new(
            ErrorKind::Usage,
            format!("--shards {shards}: GitHub runs 1 to {MAX_SHARDS} jobs of a matrix"),
        ));
    }
    let mut stacks: Vec<_> = affected
        .stacks
        .iter()
        .map(|stack| (costs.of(&stack.id), &stack.id))
        .collect();
    stacks.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let count = shards.min(stacks.len());
    let mut jobs: Vec<(u64, Vec<&StackId>)> = vec![(0, Vec::new()); count];
    for (cost, id) in stacks {
        if let Some(least) = jobs.iter_mut().min_by_key(|(sum, _)| *sum) {
            least.0 += cost;
            least.1.push(id);
        }
    }
    let include = jobs
        .into_iter()
        .enumerate()
        .map(|(at, (_, mut ids))| {
            ids.sort();
            Shard {
                shard: format!("{}/{count}", at + 1),
                stacks: serde_json::to_string(&ids).expect("a list of texts"),
            }
        })
        .collect();
    Ok(Matrix { include })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{
        RepoPath,
        affected::{AffectedStack, InputChange, SpecChange},
    };

    fn affected(names: &[&str]) -> Affected {
        let stack = |name: &&str| AffectedStack {
            stack: RepoPath::normalise(name).unwrap(),
            id: format!("p/{name}").parse().unwrap(),
            project: "p".to_owned(),
            name: (*name).to_owned(),
            change: InputChange::Modified,
            spec: SpecChange::NotCompiled,
            why: Vec::new(),
        };
        Affected {
            version: 1,
            base: None,
            head: None,
            stacks: names.iter().map(stack).collect(),
        }
    }

    fn costs(known: &[(&str, u64)]) -> Costs {
        let known = known.iter().map(|(id, cost)| ((*id).to_owned(), *cost)).collect();
        Costs { known, path: None }
    }

    #[test]
    fn the_dear_one_gets_a_job_of_its_own() {
        let matrix = shares(
            &affected(&["a", "b", "c", "d"]),
            2,
            &costs(&[("p/c", 90), ("p/a", 10), ("p/b", 20), ("p/d", 30)]),
        )
        .unwrap();
        let lists: Vec<_> = matrix.include.iter().map(|shard| shard.stacks.as_str()).collect();
        assert_eq!(lists, ["[\"p/c\"]", "[\"p/a\",\"p/b\",\"p/d\"]"]);
        assert_eq!(matrix.include[1].shard, "2/2");
    }

    #[test]
    fn every_stack_is_in_exactly_one_share() {
        let names: Vec<String> = (0..100).map(|n| format!("s{n:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for shards in [1, 3, 7, 256] {
            let matrix = shares(&affected(&names), shards, &costs(&[])).unwrap();
            let mut all: Vec<String> = matrix
                .include
                .iter()
                .flat_map(|shard| serde_json::from_str::<Vec<String>>(&shard.stacks).unwrap())
                .collect();
            all.sort();
            assert_eq!(all.len(), 100);
            all.dedup();
            assert_eq!(all.len(), 100);
            assert_eq!(matrix.include.len(), shards.min(100));
        }
        assert!(shares(&affected(&names), 257, &costs(&[])).is_err());
        assert!(shares(&affected(&[]), 4, &costs(&[])).unwrap().include.is_empty());
    }
}
