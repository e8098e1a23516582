//! Reads blobs from the object databases of the repository and its submodules.

use std::sync::Arc;

use super::pool::RepositoryPool;
use konverge_base::model::file_source::{BlobId, SourceError};

/// Reads a blob from the repository or from a submodule.
pub(super) fn read_blob(
    handles: &RepositoryPool,
    submodules: &[Arc<RepositoryPool>],
    blob: BlobId,
) -> Result<Arc<[u8]>, SourceError> {
    let read = |handles: &RepositoryPool| {
        handles.with(|git| {
            let odb = git.odb()?;
            let object = odb.read(git2::Oid::from_bytes(&blob.0)?)?;
            Ok(Arc::from(object.data()))
        })
    };
    let first = read(handles);
    let mut answers = submodules.iter().map(|submodule| read(submodule));
    match first {
        Ok(bytes) => Ok(bytes),
        Err(error) => answers.find_map(Result::ok).ok_or_else(|| SourceError {
            what: format!("object {blob}"),
            why: if is_partial(handles) {
                WITHOUT_FILTER.into()
            } else {
                error.into()
            },
        }),
    }
}

/// The hint for a partial clone, which lacks file contents.
const WITHOUT_FILTER: &str = "this is a partial clone, which lacks files. In the workflow, take the line `filter: …` \
    out under `uses: actions/checkout`; on your machine, `git fetch --refetch --no-filter origin` brings them";

/// Returns true for a partial clone (`git clone --filter`), where objects are missing on purpose.
fn is_partial(handles: &RepositoryPool) -> bool {
    let asked = handles.with(|git| Ok(git.config()?.get_bool("remote.origin.promisor")?));
    asked.unwrap_or_default()
}
