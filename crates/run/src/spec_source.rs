//! [`SpecSource`]: the source of the Specs of a run.

use crate::{OpenRevision, compiler::Compilers};
use konverge_base::model::spec::Spec;

/// The source of Specs.
pub enum SpecSource {
    /// Compiled from revisions of a monorepo.
    Compiled {
        /// Compiles the stacks of both revisions.
        compilers: Box<Compilers>,
        /// The head, whose Specs are the desired ones.
        head: Box<OpenRevision>,
        /// The base, for comparisons that query no cluster.
        base: Option<Box<OpenRevision>>,
    },
    /// The Spec of a file.
    File(Spec),
}

impl SpecSource {
    /// Creates a source that compiles Specs.
    pub fn compiled(compilers: Compilers, head: OpenRevision, base: Option<OpenRevision>) -> Self {
        Self::Compiled {
            compilers: Box::new(compilers),
            head: Box::new(head),
            base: base.map(Box::new),
        }
    }

    /// Returns the head; `None` for a Spec from a file.
    pub fn head(&self) -> Option<&OpenRevision> {
        match self {
            Self::Compiled { head, .. } => Some(head),
            Self::File(_) => None,
        }
    }
}
