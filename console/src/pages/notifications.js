// Notices: what notification rules have told users in the app.
import { may, post } from '../api.js';
import { firstLine } from '../format.js';
import { html } from '../html.js';
import { useNewest } from '../load.js';
import { refine, to } from '../router.js';
import { person } from '../shared.js';
import { Ago, Button, Empty, Loaded, Older, Page, Table } from '../ui.js';

export function Notifications({ query }) {
    const notices = useNewest(
        '/v1/notifications',
        { org_id: query.org_id, user_id: query.user, unread: query.unread },
        'notifications',
        (one) => one.id,
        { every: 3000 },
    );
    const canMark = may.operate(person.use());
    async function mark(one) {
        await post(`/v1/notifications/${one.id}/read`);
        notices.refresh();
    }
    const tools = html`<label class="choice"><input type="checkbox" checked=${query.unread === 'true'}
            onChange=${(event) => refine({ unread: event.target.checked ? 'true' : undefined })} /> unread only</label>
        <div class="filters"><label>user <input type="text" value=${query.user || ''}
            onChange=${(event) => refine({ user: event.target.value.trim() || undefined })} /></label></div>`;
    return html`<${Page} title="Notices" note="In the feeds of users, by notification rules." tools=${tools}>
        <${Loaded} from=${notices} what="notices" rows=${10}>
            ${() => html`<${Table} label="Notices" rows=${notices.rows} keyOf=${(one) => one.id}
            empty=${
                query.user || query.unread
                    ? html`<${Empty} title="No such notices" />`
                    : html`<${Empty} title="No notices">A rule of outlog.yaml with the channel in_app puts them here.<//>`
            }
            columns=${[
                {
                    label: 'user',
                    cell: (one) =>
                        html`<a href=${to('notices', { ...query, user: one.user_id })}>${one.user_id}</a>`,
                },
                { label: 'subject', grow: true, cell: (one) => html`<${Words} of=${one} />` },
                {
                    label: 'event',
                    wide: true,
                    cell: (one) =>
                        one.event_id
                            ? html`<a href=${to('events', one.event_id)}>${one.event_type}</a>`
                            : one.event_type,
                },
                { label: 'category', wide: true, cell: (one) => one.category },
                { label: 'org', wide: true, cell: (one) => one.org_id },
                {
                    label: 'told',
                    right: true,
                    cell: (one) => html`<${Ago} at=${one.created_at} />`,
                },
                {
                    label: 'read',
                    right: true,
                    cell: (one) =>
                        one.read_at
                            ? html`<${Ago} at=${one.read_at} />`
                            : canMark
                              ? html`<${Button} onPress=${() => mark(one)}>Mark as read<//>`
                              : 'unread',
                },
            ]} /><${Older} of=${notices} />`}<//><//>`;
}

// What it says, behind its subject; a notice in HTML alone has no words that could be shown here.
function Words({ of }) {
    const subject = html`<span class=${of.read_at ? 'dim' : ''}>${firstLine(of.subject, 120)}</span>`;
    return of.body_text
        ? html`<details class="words"><summary>${subject}</summary><p>${of.body_text}</p></details>`
        : subject;
}
