//! The parts of a resource id in Kusion's format. An author may choose any other text as the id, which then has no
//! parts.

use super::{GroupKind, ResourceId, spec::RuntimeKind};

/// The parts of `apiVersion:Kind[:namespace]:name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectParts<'a> {
    /// The API version, such as `apps/v1`.
    pub api_version: &'a str,
    /// The kind, such as `Deployment`.
    pub kind: &'a str,
    /// The rest, `[namespace:]name`. Names of RBAC objects may contain colons, so the namespace cannot be recognized in
    /// the text.
    pub name: &'a str,
}

/// The parts of `namespace:provider:type[:name]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerraformParts<'a> {
    /// The namespace of the provider, such as `hashicorp`.
    pub namespace: &'a str,
    /// The name of the provider, such as `aws`.
    pub provider: &'a str,
    /// The resource type, such as `aws_s3_bucket`.
    pub kind: &'a str,
    /// The name of the resource; `None` if the id has three parts.
    pub name: Option<&'a str>,
}

impl<'a> ObjectParts<'a> {
    /// Parses an id; `None` if it has fewer than three parts.
    pub fn parse(id: &'a str) -> Option<Self> {
        let mut parts = id.splitn(3, ':');
        Some(Self {
            api_version: parts.next()?,
            kind: parts.next()?,
            name: parts.next()?,
        })
    }

    /// Returns the kind without the version.
    pub fn group_kind(&self) -> GroupKind<'a> {
        GroupKind::from_api_version(self.api_version, self.kind)
    }

    /// Returns `namespace/name`, or the name alone.
    pub fn path(&self) -> String {
        match self.group_kind() {
            // These kinds are cluster-scoped, but their names often contain colons: `system:node`.
            GroupKind::CLUSTER_ROLE | GroupKind::CLUSTER_ROLE_BINDING => self.name.to_owned(),
            _ => self.name.replacen(':', "/", 1),
        }
    }
}

impl ResourceId {
    /// Returns the parts of the id of a Kubernetes object.
    pub fn object(&self) -> Option<ObjectParts<'_>> {
        ObjectParts::parse(self.as_str())
    }

    /// Returns the parts of the id of a Terraform resource.
    pub fn terraform(&self) -> Option<TerraformParts<'_>> {
        let mut parts = self.as_str().splitn(4, ':');
        Some(TerraformParts {
            namespace: parts.next()?,
            provider: parts.next()?,
            kind: parts.next()?,
            name: parts.next(),
        })
    }

    /// Returns the text after the last colon: the name of an object or of a Terraform resource.
    pub fn name(&self) -> &str {
        self.as_str().rsplit(':').next().unwrap_or_default()
    }

    /// Guesses the runtime from the id, for records that have nothing else: only the id of a Kubernetes object begins
    /// with an API version.
    pub fn runtime_by_form(&self) -> RuntimeKind {
        let first = self.as_str().split(':').next().unwrap_or_default();
        let is_core = first
            .strip_prefix('v')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if is_core || first.contains('/') {
            RuntimeKind::Kubernetes
        } else {
            RuntimeKind::Terraform
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ResourceId {
        text.parse().expect("an id")
    }

    #[test]
    fn an_object_has_a_kind_and_a_path() {
        let path = |text: &str| id(text).object().map(|parts| parts.path());
        assert_eq!(path("apps/v1:Deployment:web:api").as_deref(), Some("web/api"));
        assert_eq!(path("v1:Namespace:web").as_deref(), Some("web"));
        // Only the first colon ends a namespace.
        assert_eq!(
            path("rbac.authorization.k8s.io/v1:Role:web:system:a").as_deref(),
            Some("web/system:a")
        );
        assert_eq!(
            path("rbac.authorization.k8s.io/v1:ClusterRole:system:node").as_deref(),
            Some("system:node")
        );
        assert_eq!(path("mine"), None);
        let deployment = id("apps/v1:Deployment:web:api");
        assert_eq!(
            deployment.object().map(|parts| parts.group_kind()),
            Some(GroupKind::DEPLOYMENT)
        );
    }

    #[test]
    fn a_terraform_resource_keeps_colons_in_its_name() {
        let bucket = id("hashicorp:aws:aws_s3_bucket:a:b");
        let parts = bucket.terraform().expect("parts");
        assert_eq!(
            (parts.provider, parts.kind, parts.name),
            ("aws", "aws_s3_bucket", Some("a:b"))
        );
        let nameless = id("hashicorp:aws:aws_vpc");
        assert_eq!(nameless.terraform().and_then(|parts| parts.name), None);
    }

    #[test]
    fn the_form_tells_the_runtime() {
        let runtime = |text: &str| id(text).runtime_by_form();
        assert_eq!(runtime("v1:Namespace:web"), RuntimeKind::Kubernetes);
        assert_eq!(runtime("apps/v1:Deployment:web:api"), RuntimeKind::Kubernetes);
        assert_eq!(runtime("vmware:vsphere:vsphere_folder:f"), RuntimeKind::Terraform);
    }
}
