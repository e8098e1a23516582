//! Recorded types as the portal shows them.

use konverge_portal::{SearchNames, Writer};
use konverge_state::{DocumentWriter, StackSummary};

pub(super) fn writer(writer: DocumentWriter) -> Writer {
    Writer {
        run: writer.run,
        actor: writer.actor,
    }
}

/// What a stack adds to the search.
pub(super) fn search_names(summary: StackSummary) -> SearchNames {
    SearchNames {
        names: summary.names,
        images: summary.images,
        more: summary.more,
    }
}
