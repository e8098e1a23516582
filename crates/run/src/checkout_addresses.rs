//! Decides to which addresses a command may send credentials. A command by hand reads `konverge.yaml` of the checkout,
//! which may be somebody's pull request, so an address that only commits of the checkout name gets none. In CI the file
//! of the default branch counts.

use std::collections::BTreeSet;

use crate::{RevisionSpec, RunContext};
use konverge_base::{
    error::{ErrorKind, UserError},
    variables,
};
use konverge_config::Config;
use konverge_repo::git::{GitError, Repository};

/// The variable with the addresses that the user trusts, separated by commas.
const TRUSTED: &str = variables::KONVERGE_TRUSTED_ADDRESSES;

/// Checks the addresses in the configuration of a revision. An address that the user changed without a commit is
/// trusted.
///
/// # Errors
/// An address is neither in the file of the default branch nor in the variable of trusted addresses; the default branch
/// is unknown.
pub fn check(
    run: &RunContext,
    repository: Option<&Repository>,
    at: &RevisionSpec,
    config: &Config,
) -> Result<(), UserError> {
    let mut addresses = config.addresses();
    let Some(repository) = repository.filter(|_| !addresses.is_empty()) else {
        return Ok(());
    };
    let trusted = run.var(TRUSTED).unwrap_or_default();
    let mut known: BTreeSet<String> = trusted.split(',').map(|one| one.trim().to_owned()).collect();
    let branch = match repository.default_branch() {
        // Without a commit nobody can have proposed a change, so there is nothing to compare with.
        Err(GitError::NothingCommitted) => return Ok(()),
        branch => branch.ok(),
    };
    let of_revision = |name: &str| -> Result<Vec<String>, UserError> {
        let commit = repository.resolve(name)?;
        // An invalid `konverge.yaml` at that revision counts as one without addresses.
        let there = Config::load(repository.revision(&commit)?.as_ref()).unwrap_or_default();
        Ok(there.addresses().into_values().collect())
    };
    if let Some(branch) = &branch {
        known.extend(of_revision(branch)?);
    }
    if *at == RevisionSpec::Worktree {
        let committed = of_revision("HEAD")?;
        addresses.retain(|_, address| committed.contains(address));
    }
    let Some((key, address)) = addresses.iter().find(|(_, address)| !known.contains(*address)) else {
        return Ok(());
    };
    let shown = address.escape_debug();
    let where_not = match &branch {
        Some(branch) => format!("`{branch}` does not have it"),
        None => "the default branch of this clone is unknown".to_owned(),
    };
    let error = UserError::new(
        ErrorKind::Config,
        format!("konverge.yaml of this checkout sends credentials to `{shown}` (`{key}`), and {where_not}"),
    )
    .hint(format!(
        "if you trust the address, run the command again with {TRUSTED}={shown}; else check out a revision that you trust"
    ));
    Err(match branch {
        Some(_) => error,
        None => error.hint("`git remote set-head origin --auto` tells git which branch is the default one"),
    })
}
