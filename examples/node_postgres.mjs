// An event and an ordinary row in one transaction, with Node and `pg`.
//
//     npm install pg
//     outlog init --store postgres://localhost/app
//     node node_postgres.mjs postgres://localhost/app
//
// outlog.append() is a function in your database: it commits and rolls back with your own writes.
import pg from 'pg';

const db = new pg.Client(process.argv[2]);
await db.connect();
await db.query('set client_min_messages = warning');
await db.query('create table if not exists orders (id text primary key, total int)');

const append = (orderId, payload) =>
    db.query(
        `select event_id, aggregate_seq
           from outlog.append(org_id => 'acme', aggregate_type => 'order', aggregate_id => $1,
                              event_type => 'order.created', payload => $2, expected_seq => 0)`,
        [orderId, JSON.stringify(payload)],
    );

async function placeOrder(orderId, total, { inStock = true } = {}) {
    await db.query('begin');
    try {
        await db.query('insert into orders values ($1, $2)', [orderId, total]);
        const done = await append(orderId, { total });
        if (!inStock) throw new Error('out of stock');
        await db.query('commit');
        return done.rows[0].event_id;
    } catch (error) {
        await db.query('rollback');
        throw error;
    }
}

console.log('order o-1 is event', await placeOrder('o-1', 12));
await placeOrder('o-2', 5, { inStock: false }).catch((error) =>
    console.log('order o-2:', error.message),
);
await append('o-1', {}).catch((error) => {
    const refusal = JSON.parse(error.detail);
    console.log('refused:', error.code, refusal.code, 'actual', refusal.actual);
});

const { rows } = await db.query(
    'select (select count(*) from orders) as orders, (select count(*) from outlog.events) as events',
);
console.log(`${rows[0].orders} order, ${rows[0].events} event`);
await db.end();
