//! Options of targets: the source from which a controller reads the files, and the name of a chart.

/// A git repository or an OCI artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliverySource {
    /// The URL of a git repository, or `oci://HOST/NAME`.
    pub url: String,
    /// The branch of the repository, or the tag of the artifact.
    pub revision: Option<String>,
    /// The folder of the files in the source.
    pub path: String,
    /// The namespace of the controller's objects.
    pub namespace: String,
}

impl DeliverySource {
    /// Returns true for an OCI artifact.
    pub fn is_artifact(&self) -> bool {
        self.url.starts_with("oci://")
    }

    /// Returns the path of a file or folder in the source.
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
    /// The name of the chart; by default derived from the stack.
    pub name: Option<String>,
    /// The version of the chart; by default derived from the digest of the Spec.
    pub version: Option<String>,
}
