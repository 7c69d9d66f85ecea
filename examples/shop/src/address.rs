//! The default address: the attribute on handlers of axum.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use lock_runtime::cache_lock;
use serde::{Deserialize, Serialize};

use crate::{Failure, Shop};

/// An address, as callers send and receive it.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Address {
    address: String,
}

/// Makes this the user's only default address. The lock is named after the user: `State`, `Path` and `Json` are taken apart
/// before the key is read.
#[cache_lock(prefix = "default_address", key = user, manager = &shop.locks)]
pub(crate) async fn put_default_address(
    State(shop): State<Arc<Shop>>,
    Path(user): Path<i64>,
    Json(Address { address }): Json<Address>,
) -> Result<StatusCode, Failure> {
    let mut transaction = shop.database.pool().begin().await?;
    sqlx::query("UPDATE addresses SET is_default = 0 WHERE user_id = $1").bind(user).execute(&mut *transaction).await?;
    sqlx::query("INSERT INTO addresses (user_id, address, is_default) VALUES ($1, $2, 1)")
        .bind(user)
        .bind(address)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A read needs no lock.
pub(crate) async fn default_addresses(
    State(shop): State<Arc<Shop>>,
    Path(user): Path<i64>,
) -> Result<Json<Vec<Address>>, Failure> {
    let addresses = "SELECT address FROM addresses WHERE user_id = $1 AND is_default = 1";
    let addresses: Vec<String> = sqlx::query_scalar(addresses).bind(user).fetch_all(shop.database.pool()).await?;
    Ok(Json(addresses.into_iter().map(|address| Address { address }).collect()))
}
