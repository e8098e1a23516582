//! The targets of an export. Each target only wraps the objects of a bundle.

use crate::{
    argocd,
    bundle::Bundle,
    crossplane,
    error::ExportError,
    exported::Exported,
    flux, helm, oam,
    options::{ChartOptions, DeliverySource},
};

/// A target with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportTarget {
    /// One chart or more for Helm 3 and 4.
    Helm(ChartOptions),
    /// Objects with sync waves for Argo CD, and an Application if the source is known.
    ArgoCd(Option<DeliverySource>),
    /// A folder for each level for Flux, and Kustomizations if the source is known.
    Flux(Option<DeliverySource>),
    /// An Application of the Open Application Model, for KubeVela.
    Oam,
    /// Objects of Crossplane's provider for Kubernetes.
    Crossplane,
}

impl ExportTarget {
    /// Returns the name of the target.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Helm(_) => "helm",
            Self::ArgoCd(_) => "argocd",
            Self::Flux(_) => "flux",
            Self::Oam => "oam",
            Self::Crossplane => "crossplane",
        }
    }
}

/// Wraps a bundle for a target.
///
/// # Errors
/// The target cannot express an object, or the name or the version is invalid.
pub fn export(bundle: &Bundle, target: &ExportTarget) -> Result<Exported, ExportError> {
    match target {
        ExportTarget::Helm(options) => helm::export(bundle, options),
        ExportTarget::ArgoCd(source) => argocd::export(bundle, source.as_ref()),
        ExportTarget::Flux(source) => flux::export(bundle, source.as_ref()),
        ExportTarget::Oam => oam::export(bundle),
        ExportTarget::Crossplane => crossplane::export(bundle),
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
