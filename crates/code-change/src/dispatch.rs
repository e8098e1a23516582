//! An edit that another repository asks for by the event `repository_dispatch` of the type `konverge-set`. The caller
//! proves its repository by the OIDC token of its job, which is bound to this edit and can be used once. `set.allow` on
//! the default branch says what the caller may set.

use serde_json::Value;

use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{CommitId, RepoPath, StackId, digest::DigestBuilder},
};
use konverge_cloud::{JobProof, bound_audience, verify_job};
use konverge_config::Config;
use konverge_forge::{Forge, JobEvent};
use konverge_repo::git::Repository;
use konverge_run::{KeyUse, OpenRevision, RevisionSpec, RunContext, forge::open_job, state_backend};
use konverge_state::store::{Created, Key};

use crate::{
    code_editor::EditPlace,
    prepared_edits::{EditTarget, PreparedEdits, SetRequest, WantedEdit},
};

/// The type of the event, and the purpose of the token.
const TYPE: &str = "konverge-set";

/// Edit that a job of another repository requests.
pub struct DispatchedEdit {
    /// The tip of the default branch, which is edited.
    pub commit: CommitId,
    /// The edit that the event asks for.
    pub request: SetRequest,
    folder: RepoPath,
    config: Config,
    proof: JobProof,
}

/// Reads the event of the job, and checks that its caller may ask for an edit of the stack at all.
///
/// # Errors
/// Another event, a payload without a field, a token that proves nothing, or no rule for the caller and the stack.
pub async fn read_dispatch(
    run: &RunContext,
    forge: &dyn Forge,
    repository: &Repository,
) -> Result<DispatchedEdit, UserError> {
    let job = open_job(&run.env)?;
    let payload = match job.event()? {
        JobEvent::RepositoryDispatch { action, payload } if action == TYPE => payload,
        _ => {
            return Err(UserError::new(
                ErrorKind::Usage,
                format!("`--dispatch` is for a `repository_dispatch` of the type `{TYPE}`"),
            )
            .hint("elsewhere name the stack and the image: `konverge set STACK --image NAME=REF`"));
        }
    };
    let [stack, image, digest, token] = ["stack", "image", "digest", "token"].map(|key| field(&payload, key));
    let (stack, image, digest, token) = (stack?, image?, digest?, token?);
    // Register the token as a secret before any message could quote it.
    run.secrets.learn(token);
    let id: StackId = stack
        .parse()
        .map_err(|_| wrong("stack", "is not an identity of a stack"))?;
    if !is_digest(digest) {
        return Err(wrong("digest", "is not `sha256:` and 64 hexadecimal digits"));
    }
    if image
        .chars()
        .any(|c| !(c.is_ascii_alphanumeric() || "./:_-".contains(c)))
    {
        return Err(wrong("image", "is not the name of an image"));
    }
    // The audience binds the token to this repository, stack, image and digest, so it permits no other edit.
    let audience = bound_audience(TYPE, &[&job.info().repository, stack, image, digest]);
    let proof = verify_job(token, &job.token_issuer()?, &audience).await;
    let proof = proof.map_err(|error| {
        refused(format!("the caller is unknown: {}", chain(&error))).hint(
            "request a new token: a token is valid for one stack, image and digest, and expires in minutes; see the guide",
        )
    })?;
    // Read the rules from the tip of the default branch, whatever is checked out.
    let branch = forge.default_branch().await?;
    let credentials = run.git_credentials().await?;
    repository.ensure(&branch.tip, credentials.as_ref()).await?;
    let head = OpenRevision::open(run, repository, &RevisionSpec::Commit(branch.tip.clone()))?;
    let known = head
        .layout
        .stack(&id)
        .filter(|stack| head.config.set.allows(&proof.repository, &stack.folder, None));
    // The same error for a stack that does not exist and for one without a rule: a caller without permission does not
    // learn which stacks exist.
    let Some(found) = known else {
        return Err(refused(format!(
            "no rule of `set.allow` lets {} ask for an edit of {id}",
            proof.repository
        )));
    };
    Ok(DispatchedEdit {
        request: SetRequest::Edits(vec![WantedEdit {
            stacks: vec![selector(&id)?],
            target: EditTarget::Image(image.to_owned(), format!("{image}@{digest}")),
            place: EditPlace::Stack,
        }]),
        folder: found.folder.clone(),
        config: head.config,
        commit: branch.tip,
        proof,
    })
}

impl DispatchedEdit {
    /// Checks that the caller may set the attributes that were found, and uses up its token.
    ///
    /// # Errors
    /// An attribute that no rule names, a token that was used before, or errors of the store.
    pub async fn admit(
        &self,
        run: &RunContext,
        repository: &Repository,
        prepared: &PreparedEdits,
    ) -> Result<(), UserError> {
        let caller = &self.proof.repository;
        for line in &prepared.lines {
            let path = line.path.to_string();
            if !self.config.set.allows(caller, &self.folder, Some(&path)) {
                return Err(refused(format!(
                    "no rule of `set.allow` lets {caller} set `{path}` of {}",
                    line.stack
                )));
            }
        }
        if self.config.state.url.is_none() {
            return Err(UserError::new(
                ErrorKind::Config,
                "`--dispatch` needs a store, in which used tokens are recorded",
            )
            .hint("set `state.url` in konverge.yaml"));
        }
        // Use up the token last, so that a refused edit can be tried again with it.
        let backend = state_backend::open(run, &self.config, Some(repository), KeyUse::Look).await?;
        let mut name = DigestBuilder::new("konverge set token");
        let name = name.part(self.proof.id.as_bytes()).finish().to_string();
        let key = Key::from_components(&["set", "used", &name]);
        let ours = format!("{} {} {}\n", self.proof.expires, run.url(), std::process::id());
        run.begin_writes()?;
        let store = backend.states.store();
        let created = store.create(&key, ours.clone().into_bytes().into()).await;
        let created = created.map_err(|error| UserError::from_error(ErrorKind::Store, error))?;
        let is_ours = match created {
            Created::Created => true,
            // The record may be our own: the response to our request may have been lost. Its content shows that.
            Created::Exists => {
                let found = store.get(&key).await;
                let found = found.map_err(|error| UserError::from_error(ErrorKind::Store, error))?;
                found.is_some_and(|found| found[..] == *ours.as_bytes())
            }
        };
        if is_ours {
            Ok(())
        } else {
            Err(refused("the token of the caller was used before".to_owned())
                .hint("each request needs a token of its own: run the calling job again"))
        }
    }
}

fn selector(id: &StackId) -> Result<konverge_run::StackSelector, UserError> {
    if id.as_str().contains(['*', '?', '[', '{']) {
        return Err(wrong("stack", "holds characters of a glob"));
    }
    id.as_str()
        .parse()
        .map_err(|_| wrong("stack", "is not an identity of a stack"))
}

fn field<'a>(payload: &'a Value, key: &str) -> Result<&'a str, UserError> {
    let text = payload[key]
        .as_str()
        .filter(|text| !text.is_empty() && text.len() < 16 << 10);
    text.ok_or_else(|| wrong(key, "is missing"))
}

fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:");
    hex.is_some_and(|hex| hex.len() == 64 && hex.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')))
}

fn wrong(key: &str, why: &str) -> UserError {
    UserError::new(
        ErrorKind::Usage,
        format!("`client_payload.{key}` of the event {why}"),
    )
    .hint("send `stack`, `image`, `digest` and `token` in the payload")
}

fn refused(why: String) -> UserError {
    UserError::new(ErrorKind::Policy, why)
}
