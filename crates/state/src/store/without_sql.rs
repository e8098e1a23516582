//! Replaces `sql.rs` in a program without the feature `sql`. It refuses every URL of a database.

use std::sync::Arc;

use bytes::Bytes;

use super::{Store, StoreError, kusion_query::KusionQuery, location::StoreLocation};

pub(super) fn sql(place: &StoreLocation, _: &str) -> Result<Arc<dyn Store>, StoreError> {
    Err(refused(place))
}

pub(super) async fn newest_kusion_state(
    place: &StoreLocation,
    _: &str,
    _: &KusionQuery,
) -> Result<Option<Bytes>, StoreError> {
    Err(refused(place))
}

fn refused(place: &StoreLocation) -> StoreError {
    place.error(
        "this program was built without databases; build it with the feature `sql`, or take a released one",
    )
}
