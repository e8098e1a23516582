//! Selects the cluster of each stack: from `konverge.yaml`, from the command line, or from `stack.yaml`.

use std::{collections::BTreeMap, path::Path};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ClusterName, stack::Stack},
};
use konverge_config::{ClusterChoice, Config};

/// The setting that decides if plans query the live infrastructure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Live {
    /// Query the infrastructure if a cluster is configured; otherwise compare Specs.
    #[default]
    Auto,
    /// Never query the infrastructure; compare Specs.
    Never,
    /// Query the infrastructure; without a configured cluster this is an error.
    Required,
}

/// A cluster from the command line, for stacks that get none from `konverge.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenCluster {
    /// The path of the kubeconfig file.
    pub kubeconfig: Option<String>,
    /// The context in the kubeconfig.
    pub context: Option<String>,
    /// The kubeconfigs that `stack.yaml` files name, by cluster name. `None` in `ci`: a pull request may name a
    /// cluster, but never a file.
    pub of_stacks: Option<BTreeMap<ClusterName, String>>,
}

impl GivenCluster {
    /// Returns true if the command line names a cluster.
    pub fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// Returns true if there may be clusters that `konverge.yaml` does not define.
    pub fn is_any(&self) -> bool {
        self.is_given() || self.of_stacks.as_ref().is_some_and(|files| !files.is_empty())
    }

    /// Adds the kubeconfigs that the `stack.yaml` files of stacks name, as Kusion 0.9.1 does. For local use only.
    pub fn with_stack_clusters<'a>(mut self, stacks: impl IntoIterator<Item = &'a Stack>) -> Self {
        let mut files = BTreeMap::new();
        let named = stacks.into_iter().filter_map(|stack| stack.kubeconfig.as_ref());
        for path in named.filter(|path| Path::new(path).is_absolute()) {
            files.entry(name_of(path)).or_insert_with(|| path.clone());
        }
        self.of_stacks = Some(files);
        self
    }

    /// Returns the cluster of a stack whose `stack.yaml` names a kubeconfig.
    fn cluster_from_file(&self, stack: &Stack, path: &str) -> Result<ClusterName, UserError> {
        let name = name_of(path);
        let why = match &self.of_stacks {
            None => "a pull request may name a cluster, never a file".to_owned(),
            Some(_) if Path::new(path).is_relative() => {
                "give an absolute path outside the repository".to_owned()
            }
            Some(files) => match files.get(&name) {
                Some(other) if other != path => format!(
                    "another stack names `{}`, and both kubeconfigs would be called `{name}`",
                    other.escape_debug()
                ),
                _ => return Ok(name),
            },
        };
        let variable = name.as_str().to_uppercase().replace(['-', '.'], "_");
        let file = &stack.manifest;
        let message = format!(
            "`{}` names the kubeconfig `{}`: {why}",
            stack.id,
            path.escape_debug()
        );
        Err(UserError::new(ErrorKind::Config, message)
            .at(file.to_string(), None, None)
            .hint(format!(
                "write into konverge.yaml, under `clusters`: `{name}: {{kubeconfig_env: {variable}_KUBECONFIG}}`, and under \
                 `stacks`: `- {{match: '{}', cluster: {name}}}`",
                stack.folder
            ))
            .hint(format!(
                "set {variable}_KUBECONFIG to the file's path where Konverge runs"
            )))
    }
}

/// Returns the cluster name for a kubeconfig that a stack names: the name of the file. So `clusters` of `konverge.yaml`
/// can use the same name later.
fn name_of(path: &str) -> ClusterName {
    let stem = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
    stem.trim_start_matches('.')
        .parse()
        .unwrap_or_else(|_| given_name())
}

/// Returns the name of the cluster from the command line.
pub fn given_name() -> ClusterName {
    "default".parse().expect("a constant that keeps the rules")
}

/// Returns the cluster of a stack; `None` if the cluster is not queried.
///
/// # Errors
/// The cluster is unknown or ambiguous, or one is required and none is configured.
pub fn cluster_of(
    config: &Config,
    stack: &Stack,
    given: &GivenCluster,
    live: Live,
) -> Result<Option<ClusterName>, UserError> {
    if live == Live::Never {
        return Ok(None);
    }
    let names: Vec<_> = config.clusters.keys().map(ClusterName::as_str).collect();
    let names = names.join(", ");
    // `konverge.yaml` decides first. The command line and `stack.yaml` only serve stacks to which it assigns no
    // cluster.
    match config.cluster_of(stack) {
        ClusterChoice::Named(name) => Ok(Some(name)),
        ClusterChoice::Unconfigured if given.is_given() => Ok(Some(given_name())),
        ClusterChoice::Unconfigured => match &stack.kubeconfig {
            Some(path) => given.cluster_from_file(stack, path).map(Some),
            None if live == Live::Auto => Ok(None),
            None => Err(UserError::new(ErrorKind::Config, "no cluster is configured")
                .hint("name a cluster under `clusters` in konverge.yaml, or give `--kubeconfig FILE`")
                .hint("`konverge preview --live never` compares Spec with Spec")),
        },
        ClusterChoice::Unknown(name) => Err(UserError::new(
            ErrorKind::Config,
            format!(
                "`{}` names the cluster `{name}`, which konverge.yaml does not define",
                stack.id
            ),
        )
        .hint(if config.clusters.is_empty() {
            "define the cluster under `clusters` in konverge.yaml".to_owned()
        } else {
            format!("defined are: {names}")
        })),
        ClusterChoice::Ambiguous => Err(UserError::new(
            ErrorKind::Config,
            format!(
                "no rule assigns a cluster to `{}` ({names} are defined)",
                stack.id
            ),
        )
        .hint(format!(
            "add a rule under `stacks` in konverge.yaml: `- {{match: '{}', cluster: …}}`",
            stack.folder
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(kubeconfig: &str) -> Stack {
        Stack {
            kubeconfig: Some(kubeconfig.to_owned()),
            ..crate::test_fixture::stack("shop/prod")
        }
    }

    fn select_name(
        config: &Config,
        stack: &Stack,
        given: &GivenCluster,
        live: Live,
    ) -> Result<String, UserError> {
        let cluster = cluster_of(config, stack, given, live)?;
        Ok(cluster.map_or_else(String::new, |name| name.to_string()))
    }

    #[test]
    fn a_kubeconfig_of_stack_yaml_is_read_on_a_machine_of_ones_own_and_refused_in_ci() {
        let none = Config::default();
        let prod = stack("/home/me/.kube/prod.yaml");
        let own = GivenCluster::default().with_stack_clusters([&prod]);
        assert_eq!(select_name(&none, &prod, &own, Live::Auto).unwrap(), "prod");
        assert_eq!(select_name(&none, &prod, &own, Live::Never).unwrap(), "");

        let refusal = select_name(&none, &prod, &GivenCluster::default(), Live::Auto).unwrap_err();
        assert!(refusal.message.contains("/home/me/.kube/prod.yaml"), "{refusal}");
        assert!(refusal.message.contains("never a file"), "{refusal}");
        assert_eq!(refusal.location.unwrap().file, "appops/shop/prod/stack.yaml");
        // The suggested entry continues under the same name.
        let entry = "clusters:\n  prod: {kubeconfig_env: PROD_KUBECONFIG}\n";
        let rule = "- {match: 'appops/shop/prod', cluster: prod}";
        assert!(
            refusal.hints[0].contains(entry.lines().last().unwrap().trim()),
            "{:?}",
            refusal.hints
        );
        assert!(refusal.hints[0].contains(rule), "{:?}", refusal.hints);
        let written = Config::parse(&format!("version: 1\n{entry}stacks:\n  {rule}\n")).unwrap();
        let ci = GivenCluster::default();
        assert_eq!(select_name(&written, &prod, &ci, Live::Required).unwrap(), "prod");
    }

    #[test]
    fn a_kubeconfig_in_the_repository_or_of_another_stacks_name_is_refused() {
        let none = Config::default();
        let inside = stack("ci/prod.yaml");
        let other = stack("/b/prod");
        let given = GivenCluster::default().with_stack_clusters([&inside, &stack("/a/prod.yaml"), &other]);
        let refusal = select_name(&none, &inside, &given, Live::Auto).unwrap_err();
        assert!(refusal.message.contains("outside the repository"), "{refusal}");
        let refusal = select_name(&none, &other, &given, Live::Auto).unwrap_err();
        assert!(refusal.message.contains("/a/prod.yaml"), "{refusal}");
    }

    #[test]
    fn konverge_yaml_decides_first_and_what_it_leaves_open_is_an_error() {
        let unnamed = Stack {
            kubeconfig: None,
            ..stack("")
        };
        let named = Stack {
            cluster: Some("blue".parse().unwrap()),
            ..unnamed.clone()
        };
        let config = |text: &str| Config::parse(&format!("version: 1\n{text}")).unwrap();
        let one = config("clusters: {blue: {}}\n");
        let two = config("clusters: {blue: {}, green: {}}\n");
        let given = GivenCluster {
            context: Some("mine".to_owned()),
            ..GivenCluster::default()
        };
        let choose = |config: &Config, stack: &Stack, given: &GivenCluster, live| {
            select_name(config, stack, given, live).map_err(|error| (error.message, error.hints.join("\n")))
        };
        let none = Config::default();
        let not_given = GivenCluster::default();
        assert_eq!(choose(&one, &unnamed, &given, Live::Auto).as_deref(), Ok("blue"));
        assert_eq!(
            choose(&two, &named, &not_given, Live::Required).as_deref(),
            Ok("blue")
        );
        assert_eq!(
            choose(&none, &unnamed, &given, Live::Required).as_deref(),
            Ok("default")
        );
        assert_eq!(choose(&none, &unnamed, &not_given, Live::Auto).as_deref(), Ok(""));
        assert_eq!(choose(&two, &unnamed, &not_given, Live::Never).as_deref(), Ok(""));
        let (message, hints) = choose(&none, &unnamed, &not_given, Live::Required).unwrap_err();
        assert!(
            message == "no cluster is configured" && hints.contains("--live never"),
            "{hints}"
        );
        // The command line must not stand in for a cluster that the configuration does not have.
        let (message, hints) = choose(&none, &named, &given, Live::Auto).unwrap_err();
        assert!(message.contains("names the cluster `blue`"), "{message}");
        assert!(hints.contains("define the cluster"), "{hints}");
        let (message, hints) = choose(&two, &unnamed, &given, Live::Auto).unwrap_err();
        assert!(message.contains("blue, green are defined"), "{message}");
        assert!(
            hints.contains("- {match: 'appops/shop/prod', cluster: …}"),
            "{hints}"
        );
    }
}
