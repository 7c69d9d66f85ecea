//! The types of the standard library, and `Uuid`, as [`LockKey`]s.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroU128, NonZeroUsize,
};
use std::rc::Rc;
use std::sync::Arc;

use uuid::Uuid;

use super::{LockKey, NameParts};
use crate::InvalidKey;

macro_rules! plain_keys {
    ($($key:ty),*) => {$(
        impl LockKey for $key {
            fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
                name.plain(self);
                Ok(())
            }
        }
    )*};
}

plain_keys!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, Uuid);
plain_keys!(NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize);
plain_keys!(NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize);

macro_rules! displayed_keys {
    ($($key:ty),*) => {$(
        impl LockKey for $key {
            fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
                name.displayed(self)
            }
        }
    )*};
}

// As they are written, with escaped colons. What is not written is no part: the flow information of an IPv6 socket.
displayed_keys!(IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6);

macro_rules! borrowed_keys {
    ($($key:ty),*) => {$(
        impl<T: LockKey + ?Sized> LockKey for $key {
            fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
                T::write_parts(self, name)
            }
        }
    )*};
}

borrowed_keys!(&T, &mut T, Box<T>, Rc<T>, Arc<T>);

impl<T: LockKey + ToOwned + ?Sized> LockKey for Cow<'_, T> {
    fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
        T::write_parts(self, name)
    }
}

impl LockKey for str {
    fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
        name.part(self)
    }
}

impl LockKey for String {
    fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
        name.part(self)
    }
}

impl LockKey for char {
    fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
        name.part(self.encode_utf8(&mut [0; 4]))
    }
}

/// `Some(x)` is `x`. `None` names nothing and is refused.
impl<T: LockKey> LockKey for Option<T> {
    fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
        match self {
            Some(key) => key.write_parts(name),
            None => Err(name.problem("is `None`")),
        }
    }
}

macro_rules! tuple_keys {
    ($(($($part:ident)+))*) => {$(
        impl<$($part: LockKey),+> LockKey for ($($part,)+) {
            #[allow(non_snake_case, reason = "the parts are named after their types")]
            fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
                let ($($part,)+) = self;
                $($part.write_parts(name)?;)+
                Ok(())
            }
        }
    )*};
}

tuple_keys! {
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H)
    (A B C D E F G H I) (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L)
}
