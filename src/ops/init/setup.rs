//! What a person says about a repository that `init` sets up: where state is kept, which cloud the jobs log in at, which
//! cluster they apply to.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::ClusterName,
};

/// The step of the workflow that runs Konverge.
pub(super) const STEP: &str = "      - uses: konverge/konverge@v0\n";

/// What to write besides what the repository itself says. Nothing is asked for: what is not set stays a comment.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// The cloud that the jobs log in at.
    pub cloud: Option<JobCloud>,
    /// The address of the store.
    pub store: Option<String>,
    /// The cluster: its name, and the context in the kubeconfig.
    pub cluster: Option<ClusterName>,
    /// The environments that are applied one after the other, each by its own job.
    pub environments: Vec<String>,
    /// Whether the stacks of the repository run already.
    pub adopt: bool,
}

/// A cloud that the jobs log in at by OIDC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobCloud {
    /// Amazon Web Services.
    Aws,
}

/// The role of each job, as a variable of the repository. Drift is looked for with the role of the apply: both run code of
/// the default branch.
const AWS_ROLES: [&str; 3] = [
    "KONVERGE_PREVIEW_ROLE",
    "KONVERGE_APPLY_ROLE",
    "KONVERGE_APPLY_ROLE",
];

impl Setup {
    /// Checks the address of the store, which is written as it is.
    ///
    /// # Errors
    /// It is not one line with a scheme.
    pub fn check(&self) -> Result<(), UserError> {
        let is_address =
            |url: &String| url.contains("://") && !url.chars().any(|c| c.is_whitespace() || c.is_control());
        match &self.store {
            Some(url) if !is_address(url) => Err(UserError::new(
                ErrorKind::Usage,
                format!("`{}` is not the address of a store", url.escape_debug()),
            )
            .hint("such as `s3://my-bucket/konverge`; the reference lists the schemes")),
            _ => Ok(()),
        }
    }

    /// Adds to the workflow what the jobs need to log in at the cloud.
    pub(super) fn workflow(&self, workflow: &str) -> String {
        let Some(JobCloud::Aws) = self.cloud else {
            return workflow.to_owned();
        };
        let token = "      id-token: write # the token that AWS trusts\n";
        let asked = workflow
            .replace(
                "      checks: write # annotations at the lines of a KCL error\n",
                &format!("      checks: write # annotations at the lines of a KCL error\n{token}"),
            )
            .replace(
                "      # id-token: write # to log in at a cloud without a stored key\n",
                token,
            )
            .replace("      # id-token: write\n", token);
        let mut text = String::new();
        for (at, part) in asked.split(STEP).enumerate() {
            if let Some(role) = at.checked_sub(1).and_then(|job| AWS_ROLES.get(job)) {
                text.push_str(STEP);
                text.push_str(&format!(
                    "        env:\n          AWS_REGION: ${{{{ vars.AWS_REGION }}}}\n          AWS_ROLE_ARN: ${{{{ vars.{role} }}}}\n"
                ));
                text.push_str("        with:\n          kubeconfig: ${{ vars.KUBECONFIG }} # addresses, and no secret\n");
            }
            text.push_str(part);
        }
        text.replace(
            "        # with: { environment: production } #",
            "          # environment: production #",
        )
    }

    /// What is left to do outside of the repository.
    pub(super) fn hint(&self) -> Option<String> {
        self.cloud.map(|JobCloud::Aws| {
            "the workflow reads the variables AWS_REGION, KONVERGE_PREVIEW_ROLE, KONVERGE_APPLY_ROLE and KUBECONFIG of the \
             repository: the guide `start-eks` makes the roles and sets them"
                .to_owned()
        })
    }
}

/// A name in YAML: quoted unless it can only be parsed as text.
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
