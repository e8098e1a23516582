//! The runtimes of a run: connections to the clusters that `konverge.yaml` names, and Terraform.

use crate::{
    config::{ClusterChoice, Config},
    error::{ErrorKind, Failure},
    model::{ClusterName, stack::Stack},
};

/// Whether the real infrastructure is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Live {
    /// If a cluster is configured; else Spec is compared with Spec.
    #[default]
    Auto,
    /// Spec is compared with Spec.
    Never,
    /// An error if no cluster is configured.
    Required,
}

/// A cluster given on the command line, for stacks to which `konverge.yaml` gives none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenCluster {
    /// The kubeconfig's path.
    pub kubeconfig: Option<String>,
    /// The context in it.
    pub context: Option<String>,
}

impl GivenCluster {
    /// Whether one was given.
    pub fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }
}

/// The name under which a given cluster is known.
pub fn given_name() -> ClusterName {
    "default".parse().expect("a constant that keeps the rules")
}

/// The cluster of a stack, if it is to be asked.
///
/// # Errors
/// An unknown or ambiguous cluster, or none where one is required.
pub fn cluster_of(
    config: &Config,
    stack: &Stack,
    given: &GivenCluster,
    live: Live,
) -> Result<Option<ClusterName>, Failure> {
    if live == Live::Never {
        return Ok(None);
    }
    let names = || {
        config
            .clusters
            .keys()
            .map(ClusterName::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match config.cluster_of(stack) {
        ClusterChoice::Named(name) => Ok(Some(name)),
        ClusterChoice::Unconfigured if given.is_given() => Ok(Some(given_name())),
        ClusterChoice::Unconfigured if live == Live::Auto => Ok(None),
        ClusterChoice::Unconfigured => Err(Failure::new(ErrorKind::Config, "no cluster is configured")
            .hint("name one under `clusters` in konverge.yaml, or give `--kubeconfig FILE`")
            .hint("`konverge preview --live never` compares Spec with Spec")),
        ClusterChoice::Unknown(name) => Err(Failure::new(
            ErrorKind::Config,
            format!(
                "`{}` names the cluster `{name}`, which konverge.yaml does not define",
                stack.id
            ),
        )
        .hint(match config.clusters.is_empty() {
            true => "define it under `clusters` in konverge.yaml".to_owned(),
            false => format!("defined are: {}", names()),
        })),
        ClusterChoice::Ambiguous => Err(Failure::new(
            ErrorKind::Config,
            format!(
                "it is not said which cluster `{}` goes to ({} are defined)",
                stack.id,
                names()
            ),
        )
        .hint(format!(
            "add a rule under `stacks` in konverge.yaml: `- {{match: '{}', cluster: …}}`",
            stack.folder
        ))),
    }
}
