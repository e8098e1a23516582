//! The answers of a person about a repository that `init` sets up: where its state is kept, which cloud the jobs log
//! in at, which cluster they apply to.

use std::str::FromStr;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ClusterName, InvalidId},
    variables,
};

/// The forge whose jobs run Konverge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JobForge {
    /// GitHub Actions.
    #[default]
    Github,
    /// Gitea's Actions.
    Gitea,
    /// GitLab CI/CD.
    Gitlab,
}

/// The step of the workflow that runs Konverge.
pub(super) const STEP: &str = "      - uses: konverge/konverge@v0\n";

/// Settings to write besides those that the repository itself shows. Nothing asks for them: a setting that is missing
/// stays a comment.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// True if the stacks of the repository run already.
    pub adopt: bool,
    /// The environments that are applied one after the other, each by its own job.
    pub environments: Vec<String>,
    /// The forge whose jobs run Konverge.
    pub forge: JobForge,
    /// The cloud that the jobs log in at.
    pub cloud: Option<JobCloud>,
    /// The address of the store.
    pub store: Option<String>,
    /// The cluster of the stacks.
    pub cluster: Option<NamedContext>,
}

/// A cluster, named by its context in the kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedContext {
    /// The name of the cluster in `konverge.yaml`.
    pub name: ClusterName,
    /// The name of the context in the kubeconfig.
    pub context: String,
}

impl FromStr for NamedContext {
    type Err = InvalidId;

    /// Takes a context. Tools of clouds write longer ones than a cluster may be called, such as
    /// `arn:aws:eks:eu-central-1:111122223333:cluster/prod`: the last part is the name then.
    fn from_str(context: &str) -> Result<Self, InvalidId> {
        let last = || context.rsplit(['/', '@', ':']).next().unwrap_or_default();
        let name = context
            .parse()
            .or_else(|error| last().parse().map_err(|_| error))?;
        Ok(Self {
            name,
            context: context.to_owned(),
        })
    }
}

/// A cloud that the jobs log in at by OIDC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobCloud {
    /// Amazon Web Services.
    Aws,
    /// Google Cloud.
    Google,
    /// Microsoft Azure.
    Azure,
}

/// The variables of the jobs that log in at a cloud.
struct LoginVariables {
    /// The service of the cloud that trusts the token.
    trusted_by: &'static str,
    /// Variables with the same value for every job. The variables of the repository have the same names.
    shared: &'static [&'static str],
    /// The variable with the identity of the job.
    identity: &'static str,
    /// The word for such an identity, with which the names of the repository's variables end.
    kind: &'static str,
    /// The guide that describes how to create the identities.
    guide: &'static str,
}

/// The jobs that log in, in the order of the workflow. Each has an identity of its own: the drift job writes nothing,
/// and has no environment that the identity for applies could trust.
const JOBS: [&str; 3] = ["PREVIEW", "APPLY", "DRIFT"];

impl JobCloud {
    fn variables(self) -> LoginVariables {
        match self {
            Self::Aws => LoginVariables {
                trusted_by: "AWS",
                shared: &[variables::AWS_REGION],
                identity: variables::AWS_ROLE_ARN,
                kind: "ROLE",
                guide: "start-eks",
            },
            Self::Google => LoginVariables {
                trusted_by: "Google",
                shared: &[variables::GOOGLE_WORKLOAD_IDENTITY_PROVIDER],
                identity: variables::GOOGLE_SERVICE_ACCOUNT_EMAIL,
                kind: "ACCOUNT",
                guide: "permissions",
            },
            Self::Azure => LoginVariables {
                trusted_by: "Entra",
                shared: &[variables::AZURE_TENANT_ID, variables::AZURE_STORAGE_ACCOUNT_NAME],
                identity: variables::AZURE_CLIENT_ID,
                kind: "CLIENT",
                guide: "permissions",
            },
        }
    }
}

impl LoginVariables {
    /// Returns the name of the repository variable that contains the identity of a job.
    fn of_job(&self, job: &str) -> String {
        format!("KONVERGE_{job}_{}", self.kind)
    }

    /// Returns the step of a job that runs Konverge, with its login.
    fn step(&self, job: &str) -> String {
        let of_job = self.of_job(job);
        let shared = self.shared.iter().map(|name| (*name, *name));
        let lines = shared.chain([(self.identity, of_job.as_str())]);
        let env: String = lines
            .map(|(name, variable)| format!("          {name}: ${{{{ vars.{variable} }}}}\n"))
            .collect();
        format!(
            "{STEP}        env:\n{env}        with:\n          kubeconfig: ${{{{ vars.KUBECONFIG }}}} # addresses, and no secret\n"
        )
    }
}

impl Setup {
    /// Checks the address of the store, which is written unquoted, and that the forge supports the settings.
    ///
    /// # Errors
    /// The address is not one line with a scheme, or the forge's jobs have no identity or no environments.
    pub fn check(&self) -> Result<(), UserError> {
        if let Some((what, hint)) = self.lacking() {
            return Err(UserError::new(ErrorKind::Usage, what).hint(hint));
        }
        self.store.as_deref().map_or(Ok(()), check_address)
    }

    /// Returns a setting that the forge does not support, and the alternative.
    fn lacking(&self) -> Option<(&'static str, &'static str)> {
        match (self.forge, self.cloud, self.environments.as_slice()) {
            (JobForge::Github, ..) | (_, None, []) => None,
            (JobForge::Gitea, Some(_), _) => Some((
                "`--cloud`: the jobs of Gitea have no identity that a cloud could trust",
                "give the jobs the keys of the cloud as secrets",
            )),
            (JobForge::Gitea, None, _) => Some((
                "`--environments`: Gitea has no environments that people guard",
                "add a job with `for-environment` for each by hand: docs/guides/gitea.md",
            )),
            (JobForge::Gitlab, Some(_), _) => Some((
                "`--cloud`: the login of GitLab's jobs is not written",
                "add `id_tokens:` to the jobs by hand: docs/guides/gitlab.md",
            )),
            (JobForge::Gitlab, None, _) => Some((
                "`--environments`: Konverge does not read who approved a deployment at GitLab",
                "add a job with KONVERGE_FOR_ENVIRONMENT for each by hand: docs/guides/gitlab.md",
            )),
        }
    }

    /// Returns the next step for a person, if the stacks compile.
    pub(super) fn next_step(&self) -> &'static str {
        match (self.adopt, &self.store, &self.cluster) {
            (true, ..) => {
                "commit the files, open a pull request and merge it: the stacks are left alone. Then `konverge adopt \
                 --write` names those that can be taken over unchanged"
            }
            (false, None, None) => {
                "commit both files and open a pull request: its preview compares Spec with Spec until `clusters` is set; \
                 nothing is applied until `state.url` is set, too"
            }
            (false, None, Some(_)) => {
                "commit both files and open a pull request: the first preview compares Spec with Spec, the next ones ask the \
                 cluster; nothing is applied until `state.url` is set"
            }
            (false, Some(_), None) => {
                "commit both files and open a pull request: its preview compares Spec with Spec, and no object is applied, \
                 until `clusters` is set"
            }
            (false, Some(_), Some(_)) => {
                "commit both files, open a pull request and read its preview before you merge: it compares Spec with Spec, \
                 because the default branch names no cluster yet"
            }
        }
    }

    /// Adds the login at the cloud to the workflow.
    pub(super) fn workflow(&self, workflow: &str) -> String {
        let Some(cloud) = self.cloud else {
            return workflow.to_owned();
        };
        let login = cloud.variables();
        let token = format!(
            "      id-token: write # the token that {} trusts\n",
            login.trusted_by
        );
        let asked = workflow
            .replace(
                "      checks: write # annotations at the lines of a KCL error\n",
                &format!("      checks: write # annotations at the lines of a KCL error\n{token}"),
            )
            .replace(
                "      # id-token: write # to log in at a cloud without a stored key\n",
                &token,
            )
            .replace("      # id-token: write\n", &token);
        let mut text = String::new();
        for (at, part) in asked.split(STEP).enumerate() {
            if let Some(job) = at.checked_sub(1).and_then(|job| JOBS.get(job)) {
                text.push_str(&login.step(job));
            }
            text.push_str(part);
        }
        text.replace(
            "        # with: { environment: production } #",
            "          # environment: production #",
        )
    }

    /// Returns a hint about the steps outside of the repository.
    pub(super) fn hint(&self) -> Option<String> {
        let of_bot = match self.forge {
            JobForge::Github => None,
            JobForge::Gitea => Some(
                "the jobs use the secret KONVERGE_TOKEN of the repository, the token of a bot: the guide docs/guides/gitea.md lists the permissions that the bot needs",
            ),
            JobForge::Gitlab => Some(
                "the jobs use the CI/CD variables KONVERGE_GITLAB_TOKEN (protected) and GITLAB_TOKEN of the project, the tokens of bots: the guide docs/guides/gitlab.md lists the permissions that a bot needs, and the settings that an apply needs",
            ),
        };
        if let Some(hint) = of_bot {
            return Some(hint.to_owned());
        }
        self.cloud.map(|cloud| {
            let login = cloud.variables();
            let shared = login.shared.iter().map(|name| (*name).to_owned());
            let jobs = JOBS.iter().map(|job| login.of_job(job));
            let names: Vec<_> = shared.chain(jobs).collect();
            format!(
                "the workflow reads the variables {} and KUBECONFIG of the repository: the guide `{}` says what they name, \
                 and what each may do",
                names.join(", "),
                login.guide
            )
        })
    }
}

/// Checks the address of a store.
///
/// # Errors
/// The address is not one line with a scheme.
pub fn check_address(url: &str) -> Result<(), UserError> {
    if url.contains("://") && !url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::Usage,
        format!("`{}` is not the address of a store", url.escape_debug()),
    )
    .hint("such as `s3://my-bucket/konverge`; the reference lists the schemes"))
}

/// Returns a name as a YAML scalar, quoted unless it can only be parsed as a string.
pub(super) fn scalar(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let keywords = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(is_word)
        && !keywords.contains(&name.to_ascii_lowercase().as_str());
    if is_plain {
        name.to_owned()
    } else {
        serde_json::Value::from(name).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_of_a_cloud_has_a_short_name() {
        for (context, name) in [
            ("prod", "prod"),
            ("arn:aws:eks:eu-central-1:111122223333:cluster/prod", "prod"),
            ("admin@shop", "shop"),
            ("gke_project_europe-west1_prod", "gke_project_europe-west1_prod"),
        ] {
            let named: NamedContext = context.parse().unwrap();
            assert_eq!((named.name.as_str(), named.context.as_str()), (name, context));
        }
        assert!("a b".parse::<NamedContext>().is_err());
    }

    #[test]
    fn the_next_step_names_only_what_is_missing() {
        let next = |store: bool, cluster: bool| {
            let setup = Setup {
                store: store.then(|| "s3://b/k".to_owned()),
                cluster: cluster.then(|| "prod".parse().unwrap()),
                ..Setup::default()
            };
            let text = setup.next_step();
            (
                text.contains("`state.url` is set"),
                text.contains("`clusters` is set"),
            )
        };
        for (store, cluster) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(next(store, cluster), (!store, !cluster));
        }
    }
}
