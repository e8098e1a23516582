//! [`SpecSource`]: the source of the Specs of a run.

use crate::{OpenRevision, compiler::Compilers};
use konverge_base::model::spec::Spec;

/// The source of Specs.
pub enum SpecSource {
    /// Compiled from revisions of a monorepo.
    Compiled {
        /// Compile the stacks of both.
        compilers: Box<Compilers>,
        /// The head, which has the desired resources.
        head: Box<OpenRevision>,
        /// The base, for comparisons without a cluster.
        base: Option<Box<OpenRevision>>,
    },
    /// Read from a file.
    File(Spec),
}

impl SpecSource {
    /// Specs that are compiled.
    pub fn compiled(compilers: Compilers, head: OpenRevision, base: Option<OpenRevision>) -> Self {
        Self::Compiled {
            compilers: Box::new(compilers),
            head: Box::new(head),
            base: base.map(Box::new),
        }
    }

    /// The head, if the Specs are compiled.
    pub fn head(&self) -> Option<&OpenRevision> {
        match self {
            Self::Compiled { head, .. } => Some(head),
            Self::File(_) => None,
        }
    }
}
