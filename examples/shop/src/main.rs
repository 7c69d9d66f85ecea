//! The service. `cargo run --release -p shop`, then open <http://127.0.0.1:3000/>. The settings are in `settings.rs`.

use shop::{Settings, StartFailure, serve, stop_signal};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), StartFailure> {
    let stop = CancellationToken::new();
    let service = serve(Settings::from_env()?, stop.clone());
    let signal = async {
        stop_signal().await?;
        stop.cancel();
        // A second signal stops at once.
        stop_signal().await
    };
    tokio::select! {
        served = service => served,
        signalled = signal => Ok(signalled?),
    }
}
