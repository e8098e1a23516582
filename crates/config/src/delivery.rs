//! Stacks whose Kubernetes objects are applied by Argo CD or Flux: the registry of their artifacts, and the namespace
//! and the cluster of the controller.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config_problem::{Problem, problem};
use konverge_base::model::ClusterName;

/// The tool that applies the Kubernetes objects of a stack in place of Konverge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryTool {
    /// An Application of Argo CD (3.1 or later), named after the stack.
    Argocd,
    /// An OCIRepository of Flux, named after the stack, and the Kustomizations that read it.
    Flux,
}

impl DeliveryTool {
    /// All tools.
    pub const ALL: [Self; 2] = [Self::Argocd, Self::Flux];

    /// Returns the name of the tool in `konverge.yaml`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Argocd => "argocd",
            Self::Flux => "flux",
        }
    }
}

/// The registry for the artifacts of stacks with `deliver`, and the cluster of their controller.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Delivery")]
pub struct DeliveryConfig {
    /// `oci://HOST/PATH`. Each stack has an artifact of its own below it: `shop/prod` is `PATH/shop-prod`.
    pub registry: Option<String>,
    /// The tag that the controller follows. An apply moves it. Default: `live`.
    pub tag: Option<String>,
    /// The namespace of the Application, or of the OCIRepository. Default: `argocd`, or `flux-system`.
    pub namespace: Option<String>,
    /// The cluster of the controller, a name under `clusters`. Default: that of the stack.
    #[schemars(with = "Option<String>")]
    pub cluster: Option<ClusterName>,
}

impl DeliveryConfig {
    /// Returns the namespace of the controller's objects.
    pub fn namespace(&self, tool: DeliveryTool) -> &str {
        let default = match tool {
            DeliveryTool::Argocd => "argocd",
            DeliveryTool::Flux => "flux-system",
        };
        self.namespace.as_deref().unwrap_or(default)
    }

    /// Returns the first problem, with a hint. `is_used` is true if a rule has `deliver`; `is_cluster` returns true for
    /// a configured cluster.
    pub(super) fn problem(
        &self,
        is_used: bool,
        is_cluster: impl Fn(&ClusterName) -> bool,
    ) -> Option<Problem> {
        let Some(registry) = &self.registry else {
            is_used.then_some(())?;
            return problem("a rule under `stacks` has `deliver`, and `delivery.registry` is not set").hint(
                "write where the artifacts go, such as `delivery: {registry: oci://ghcr.io/acme/deploy}`",
            );
        };
        let rest = registry.strip_prefix("oci://").unwrap_or_default();
        let is_address = |c: char| c.is_ascii_alphanumeric() || "._-:/[]".contains(c);
        if !rest.contains('/') || rest.ends_with('/') || !rest.chars().all(is_address) {
            return problem(format!(
                "delivery.registry: `{}` is not an address of a registry",
                registry.escape_debug()
            ))
            .hint("write `oci://HOST/PATH`, without a tag and without credentials");
        }
        let unknown = self.cluster.as_ref().filter(|name| !is_cluster(name))?;
        problem(format!("delivery.cluster: there is no cluster `{unknown}`"))
            .hint("define the cluster under `clusters`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use konverge_base::model::RepoPath;

    #[test]
    fn delivery_follows_the_folder_and_needs_a_registry() {
        let text = "delivery: {registry: 'oci://ghcr.io/acme/deploy'}\nstacks: [{match: 'apps/*/prod', deliver: flux}, {match: 'shop/prod', deliver: argocd}]";
        let config = Config::parse(text).unwrap();
        let tool = |folder: &str| {
            config
                .for_place(
                    &"shop/prod".parse().unwrap(),
                    &RepoPath::normalize(folder).unwrap(),
                )
                .deliver
        };
        // A pull request chooses identities. It must not choose who applies.
        assert_eq!(tool("apps/shop/prod"), Some(DeliveryTool::Flux));
        assert_eq!(tool("elsewhere"), None);
        for (wrong, said) in [
            ("stacks: [{match: a, deliver: flux}]", "delivery.registry"),
            (
                "stacks: [{match: a, deliver: helm}]",
                "expected one of argocd, flux",
            ),
            ("delivery: {registry: 'https://x/y'}", "not an address"),
            ("delivery: {registry: 'oci://u:p@x/y'}", "not an address"),
            ("delivery: {registry: 'oci://x/y', cluster: c}", "no cluster `c`"),
        ] {
            let refusal = Config::parse(wrong).unwrap_err().to_string();
            assert!(refusal.contains(said), "{wrong}: {refusal}");
        }
    }
}
