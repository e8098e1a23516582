//! The options of targets: where a controller finds the files, and what a chart is called.

/// A repository or an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliverySource {
    /// The address: of a git repository, or `oci://HOST/NAME`.
    pub url: String,
    /// The branch of the repository, or the tag of the artifact.
    pub revision: Option<String>,
    /// The folder of the files in it.
    pub path: String,
    /// The namespace of the controller's objects.
    pub namespace: String,
}

impl DeliverySource {
    /// Returns true for an artifact of a registry.
    pub fn is_artifact(&self) -> bool {
        self.url.starts_with("oci://")
    }

    /// A path in the source.
    pub(crate) fn join(&self, path: &str) -> String {
        match self.path.trim_matches('/') {
            "" | "." => path.to_owned(),
            folder => format!("{folder}/{path}"),
        }
    }
}

/// The options of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChartOptions {
    /// Its name; default: the stack's.
    pub name: Option<String>,
    /// Its version; default: one that is made of the digest of the Spec.
    pub version: Option<String>,
}
