//! Lets Kusion and Konverge apply a stack alternately: checks for newer releases of Kusion, holds Kusion's lock, and
//! writes each apply as a release.

use crate::{RunContext, state::split_query};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        apply_result::StackResult,
        spec::{Resource, RuntimeKind, Spec},
        state::{JournalEntry, KusionRelease, StackState},
    },
};
use konverge_config::Config;
use konverge_secrets::{Secrets, mask_object};
use konverge_state::{
    Lease,
    kusion_releases::{BegunRelease, NewestRelease, Releases},
    store::{self, StoreOptions},
};

/// The right to apply a stack after Kusion: its releases, with no operation of Kusion in progress.
pub(crate) struct ReleaseTurn {
    releases: Releases,
    last: KusionRelease,
    newest: NewestRelease,
    begun: Option<BegunRelease>,
    /// The mark of a release that an earlier run of Konverge began and did not end.
    left: Option<String>,
}

/// Reads the releases of a stack before it is planned; `None` if no releases are written for the stack.
///
/// # Errors
/// An operation of Kusion is in progress, or Kusion has released since the last apply; the backend does not answer.
pub(crate) async fn open_turn(
    run: &RunContext,
    config: &Config,
    state: &StackState,
) -> Result<Option<ReleaseTurn>, UserError> {
    let (Some(url), Some(last)) = (&config.state.kusion_releases, &state.kusion_release) else {
        return Ok(None);
    };
    let options = StoreOptions {
        environment: run.env.clone(),
        checkout: run.checkout(),
        cancel: run.cancel.clone(),
        ..StoreOptions::default()
    };
    let store = store::open_foreign(url, &options).await?;
    let releases = Releases::new(store, &last.project, &last.workspace);
    // Fails closed: without a release, this run would not see the lock of an operation of Kusion.
    let Some(newest) = releases.newest().await? else {
        return Err(UserError::new(
            ErrorKind::State,
            format!(
                "{} has no release, and the state of `{}` follows release {}: Kusion's lock cannot be seen",
                releases.place(),
                state.stack,
                last.revision
            ),
        )
        .hint("check `state.kusion_releases`; without it Konverge neither asks for Kusion's lock nor writes releases"));
    };
    let found = &newest.release;
    let refuse = |what: String| UserError::new(ErrorKind::State, format!("{}: {what}", releases.place()));
    // The mark is the id of the lease under which Konverge began the release. Kusion writes releases without it.
    let is_ours =
        found.revision == last.revision && last.mark.as_deref().is_some_and(|mark| newest.is_marked(mark));
    if let (Some(phase), false) = (&found.under_way, is_ours) {
        return Err(refuse(format!(
            "release {} is in the phase `{}`: an operation of Kusion is in progress, or was stopped",
            found.revision,
            phase.escape_debug()
        ))
        .hint("wait for the operation; if none runs any more, `kusion release unlock` ends it"));
    }
    if found.stack != last.stack {
        return Err(refuse(format!(
                "release {} is of the stack `{}`: Kusion keeps one state for all stacks of a project in a workspace, so they cannot be applied alternately",
                found.revision,
                found.stack.escape_debug()
            ))
            .hint("give each stack a workspace of its own, or remove `state.kusion_releases`"));
    }
    // An earlier run was stopped between the record of its release in the state and the write to Kusion's store.
    let is_before_ours = last.mark.is_some() && found.revision + 1 == last.revision;
    let is_known = found.revision == last.revision && (is_ours || last.mark.is_none());
    if !is_known && !is_before_ours {
        return Err(refuse(format!(
                "the newest release is {}, and the state of `{}` follows release {}: somebody applied with Kusion since",
                found.revision, state.stack, last.revision
            ))
            .hint(format!(
                "`konverge state import {} --stack {}` imports what changed",
                folder_url(url, last),
                state.stack
            )));
    }
    // This run may replace the release, because an earlier run of Konverge began it and did not end it.
    let may_replace = found.under_way.is_some() || is_before_ours;
    let left = last.mark.clone().filter(|_| may_replace);
    Ok(Some(ReleaseTurn {
        releases,
        last: last.clone(),
        newest,
        begun: None,
        left,
    }))
}

/// Returns the URL of the folder of releases, for `state import`.
fn folder_url(backend: &str, release: &KusionRelease) -> String {
    let (path, query) = split_query(backend);
    let path = path.trim_end_matches('/');
    format!(
        "{path}/releases/{}/{}/{query}",
        release.project, release.workspace
    )
}

impl ReleaseTurn {
    /// Checks that Konverge and Kusion can both apply the stack.
    ///
    /// # Errors
    /// The stack has Terraform resources.
    pub(crate) fn check(&self, wanted: &Spec, state: &StackState) -> Result<(), UserError> {
        let wanted = wanted
            .resources
            .iter()
            .map(|resource| (&resource.id, resource.runtime));
        let recorded = state
            .resources
            .iter()
            .map(|recorded| (&recorded.id, recorded.runtime));
        let Some((id, _)) = wanted
            .chain(recorded)
            .find(|(_, kind)| *kind == RuntimeKind::Terraform)
        else {
            return Ok(());
        };
        Err(UserError::new(
            ErrorKind::State,
            format!("`{id}` is a Terraform resource: Kusion keeps its values and Konverge its state, so the two cannot apply the stack alternately"),
        )
        .hint("apply the stack with only one of the two tools; without `state.kusion_releases` Konverge writes no release"))
    }

    /// Returns true if an earlier run of Konverge began a release and did not end it.
    pub(crate) fn is_left(&self) -> bool {
        self.left.is_some()
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Begins the next release, which locks Kusion out, and records the release in the state.
    ///
    /// # Errors
    /// Another writer began this release; errors of the stores.
    pub(crate) async fn begin(
        &mut self,
        lease: &Lease,
        state: &mut StackState,
        is_destroy: bool,
    ) -> Result<(), UserError> {
        let newest = &self.newest.release;
        let revision = newest.revision + u64::from(newest.under_way.is_none());
        let release = KusionRelease {
            revision,
            mark: Some(lease.id().to_owned()),
            ..self.last.clone()
        };
        // A release that an earlier run left keeps the mark of that run until this run replaces it.
        let phase = if is_destroy { "destroying" } else { "applying" };
        let noted = match &self.left {
            Some(mark) => KusionRelease {
                mark: Some(mark.clone()),
                ..release.clone()
            },
            None => release,
        };
        // Recorded in the journal before Kusion's store is written, so that after a kill the next run recognizes the
        // release by its mark.
        let entry = JournalEntry::Release {
            release: noted.clone(),
        };
        lease.journal(vec![entry]).await?;
        let left = self.left.as_deref();
        let begun = self.releases.begin(&noted, phase, Some(&self.newest), left);
        self.begun = Some(begun.await?);
        state.kusion_release = Some(noted);
        Ok(())
    }

    /// Ends the release that this run began, if there is one.
    ///
    /// # Errors
    /// Another writer changed the release; errors of the store.
    pub(crate) async fn end(
        self,
        result: StackResult,
        wanted: &Spec,
        state: &StackState,
        secrets: &Secrets,
    ) -> Result<(), UserError> {
        let Some(begun) = self.begun else {
            return Ok(());
        };
        let phase = match result {
            StackResult::Applied | StackResult::Unchanged => "succeeded",
            _ => "failed",
        };
        let mask = |resource: &Resource| Resource {
            attributes: mask_object(secrets, &resource.attributes).into_owned(),
            ..resource.clone()
        };
        let wanted: Vec<_> = wanted.resources.iter().map(mask).collect();
        self.releases
            .end(begun, phase, &wanted, &state.resources)
            .await
            .map_err(|error| {
                UserError::from(error).hint(format!(
                    "run `konverge apply {}` again to end Kusion's release; until then the release locks Kusion",
                    state.stack
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_releases_keeps_the_query_of_its_store_at_the_end() {
        let release: KusionRelease = serde_json::from_value(serde_json::json!({
            "project": "shop", "workspace": "prod", "stack": "prod", "revision": 3,
        }))
        .unwrap();
        for (url, folder) in [
            ("s3://bucket/kusion", "s3://bucket/kusion/releases/shop/prod/"),
            (
                "s3://bucket/kusion/?region=eu",
                "s3://bucket/kusion/releases/shop/prod/?region=eu",
            ),
            ("file:///srv/kusion/", "file:///srv/kusion/releases/shop/prod/"),
        ] {
            assert_eq!(folder_url(url, &release), folder, "{url}");
        }
    }
}
