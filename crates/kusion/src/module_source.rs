//! Finds the module to which a schema belongs, and decides if its rules are built in.

use super::{KusionError, apps::Part};
use konverge_repo::konfig::{DeclaredDependency, DependencySource};

/// The organization whose modules are built in.
const ORGANISATION: &str = "kusionstack";

/// A module that a part of an application belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModuleRef {
    /// The name of the dependency, which is also the name of the KCL package.
    pub(super) name: String,
    /// The rules of a native module; `None` for a module that is a program.
    pub(super) rules: Option<NativeRules>,
}

/// The modules whose rules are built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NativeRules {
    Service(WorkloadVersion),
    Job(WorkloadVersion),
    Network,
}

impl NativeRules {
    pub(super) fn workload_version(self) -> Option<WorkloadVersion> {
        match self {
            Self::Service(era) | Self::Job(era) => Some(era),
            Self::Network => None,
        }
    }
}

/// Version of the rules that make the resources of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkloadVersion {
    /// Kusion itself, up to 0.12.0: `service` and `job` 0.1, and `kam.v1.workload`. Their resources are in
    /// the namespace that the extension `kubernetesNamespace` sets.
    BuiltIn,
    /// The module, since 0.2. Its resources are in the namespace with the project's name.
    Module,
}

/// Describes a part of an application for messages.
pub(super) fn place(key: Option<&str>) -> String {
    match key {
        Some(key) => format!("the accessory `{}`", key.escape_debug()),
        None => "the workload".to_owned(),
    }
}

impl ModuleRef {
    /// Returns the name of the module's settings in the workspace.
    pub(super) fn platform_name(&self) -> &str {
        match (self.name.as_str(), self.rules) {
            ("kam", Some(NativeRules::Service(_))) => "service",
            ("kam", Some(NativeRules::Job(_))) => "job",
            (name, _) => name,
        }
    }

    /// Finds the module of a part of an application among the dependencies of the stack.
    pub(super) fn find(
        app: &str,
        place: &str,
        part: &Part,
        dependencies: &[DeclaredDependency],
    ) -> Result<Self, KusionError> {
        let none = |why| KusionError::NoModule {
            app: app.to_owned(),
            place: place.to_owned(),
            why,
        };
        let Some(schema) = &part.schema else {
            return Err(none("is a plain dictionary"));
        };
        let Some((name, rest)) = schema.split_once('.') else {
            return Err(none("is an instance of a schema in this repository"));
        };
        let declared = dependencies.iter().find(|dependency| dependency.name == name);
        let Some(declared) = declared else {
            return Err(KusionError::NotADependency {
                app: app.to_owned(),
                place: place.to_owned(),
                module: name.to_owned(),
            });
        };
        let rules = match (name, rest) {
            _ if !is_official(declared) => None,
            ("service", _) => Some(NativeRules::Service(workload_version(declared))),
            ("job", _) => Some(NativeRules::Job(workload_version(declared))),
            ("network", _) => Some(NativeRules::Network),
            ("kam", "v1.workload.Service") => Some(NativeRules::Service(WorkloadVersion::BuiltIn)),
            ("kam", "v1.workload.Job") => Some(NativeRules::Job(WorkloadVersion::BuiltIn)),
            _ => None,
        };
        Ok(Self {
            name: name.to_owned(),
            rules,
        })
    }
}

/// Returns the modules whose workspace settings apply to a stack: those that the stack depends on. The
/// workloads of `kam` 0.1 used the settings of `service` and `job`.
pub fn platform_names(dependencies: &[DeclaredDependency]) -> Vec<String> {
    let mut names: Vec<String> = dependencies
        .iter()
        .map(|declared| declared.name.clone())
        .collect();
    let is_old = |declared: &DeclaredDependency| {
        declared.name == "kam" && workload_version(declared) == WorkloadVersion::BuiltIn
    };
    if dependencies.iter().any(is_old) {
        names.extend(["service", "job"].map(str::to_owned));
    }
    names
}

/// Returns the version of the workload rules: that of Kusion itself up to module version 0.1, otherwise that of the
/// module.
fn workload_version(declared: &DeclaredDependency) -> WorkloadVersion {
    let version = declared.version().unwrap_or_default();
    let version = version.trim_start_matches('v');
    if version.starts_with("0.0.") || version == "0.1" || version.starts_with("0.1.") {
        WorkloadVersion::BuiltIn
    } else {
        WorkloadVersion::Module
    }
}

/// Returns true for a package of Kusion's own organization on any host, and for a folder of the repository,
/// which is taken for a copy of one.
fn is_official(declared: &DeclaredDependency) -> bool {
    let (DependencySource::Oci { url, .. } | DependencySource::Git { url, .. }) = &declared.source else {
        return true;
    };
    let path = url.trim_end_matches('/').trim_end_matches(".git");
    let mut parts = path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let organization = parts.next().unwrap_or_default();
    // The modules were once folders of the one repository `catalog`.
    let own = name == declared.name || name == "catalog";
    own && organization.eq_ignore_ascii_case(ORGANISATION)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(schema: &str, kcl_mod: &str) -> Option<NativeRules> {
        let dependencies = konverge_repo::konfig::declared_dependencies(kcl_mod.as_bytes()).unwrap();
        let part = Part {
            schema: Some(schema.to_owned()),
            config: json!({}),
        };
        ModuleRef::find("shop", "the workload", &part, &dependencies)
            .unwrap()
            .rules
    }

    #[test]
    fn the_version_says_whose_rules_hold() {
        let service = |tag: &str| {
            let line = format!(
                "[dependencies]\nservice = {{ oci = \"oci://ghcr.io/kusionstack/service\", tag = \"{tag}\" }}\n"
            );
            rules("service.Service", &line)
        };
        for tag in ["0.1.0", "v0.1.1"] {
            assert_eq!(
                service(tag),
                Some(NativeRules::Service(WorkloadVersion::BuiltIn)),
                "{tag}"
            );
        }
        for tag in ["0.2.0", "0.10.0", "1.0.0"] {
            assert_eq!(
                service(tag),
                Some(NativeRules::Service(WorkloadVersion::Module)),
                "{tag}"
            );
        }
        let kam =
            "[dependencies]\nkam = { git = \"https://github.com/KusionStack/kam.git\", tag = \"0.1.0\" }\n";
        assert_eq!(
            rules("kam.v1.workload.Job", kam),
            Some(NativeRules::Job(WorkloadVersion::BuiltIn))
        );
    }

    #[test]
    fn only_kusion_s_own_modules_are_built_in() {
        let of = |line: &str| rules("network.Network", &format!("[dependencies]\n{line}\n"));
        for line in [
            "network = { oci = \"oci://mirror.example.com/kusionstack/network\", tag = \"0.3.0\" }",
            "network = { path = \"../network\" }",
            "network = \"0.3.0\"",
        ] {
            assert_eq!(of(line), Some(NativeRules::Network), "{line}");
        }
        for line in [
            "network = { oci = \"oci://ghcr.io/acme/network\", tag = \"0.3.0\" }",
            "network = { git = \"https://github.com/acme/kusionstack\", tag = \"1\" }",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
