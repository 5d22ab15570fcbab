// Feeds as they are found, one of each form, and the odd ones.
export const RSS2 = `<?xml version="1.0" encoding="utf-8"?>
<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:atom="http://www.w3.org/2005/Atom" xmlns:content="http://purl.org/rss/1.0/modules/content/">
<channel>
  <title>Harbour &amp; Sea</title>
  <link>https://harbour.example/</link>
  <atom:link href="https://harbour.example/feed.xml" rel="self" type="application/rss+xml"/>
  <item>
    <title><![CDATA[Ferry &amp; <b>cargo</b>]]></title>
    <link>/news/2?a=1&amp;b=2</link>
    <guid isPermaLink="false">harbour-2</guid>
    <description>&lt;p&gt;Two ships &amp;amp; a boat.&lt;/p&gt;&lt;script&gt;alert(1)&lt;/script&gt;</description>
    <dc:creator>Ann Bee</dc:creator>
    <pubDate>Tue, 10 Jun 2025 09:05:00 +0200</pubDate>
  </item>
  <item>
    <title>Open day</title>
    <guid>https://harbour.example/news/1</guid>
    <content:encoded><![CDATA[<p>All <em>day</em></p><p>long</p>]]></content:encoded>
    <pubDate>Mon, 09 Jun 25 22:00 EST</pubDate>
  </item>
</channel></rss>`;

export const RSS091 = `<?xml version="1.0"?>
<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN" "http://my.netscape.com/publish/formats/rss-0.91.dtd">
<rss version="0.91"><channel><title>Old paper</title><link>http://old.example/</link>
<item><title>First</title><link>http://old.example/1.html</link></item></channel></rss>`;

export const RDF = `<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/">
<channel rdf:about="http://rdf.example/"><title>RDF site</title><link>http://rdf.example/</link></channel>
<item rdf:about="http://rdf.example/a"><title>A</title><link>http://rdf.example/a</link><dc:date>2024-02-29T12:00:00Z</dc:date><dc:creator>Cy</dc:creator></item>
</rdf:RDF>`;

export const ATOM = `<?xml version="1.0" encoding="utf-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xml:base="https://atom.example/blog/">
  <title type="html">News &amp;amp; more</title>
  <entry>
    <id>tag:atom.example,2025:1</id>
    <title type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">A <b>bold</b> claim</div></title>
    <link rel="self" href="1.atom"/><link rel="alternate" href="1.html"/>
    <summary type="text">1 &lt; 2</summary>
    <author><name>Dee</name></author><author><name>Ed</name></author>
    <updated>2025-03-01T00:00:00.5+01:00</updated>
  </entry>
  <entry><id>tag:atom.example,2025:2</id><title>Second</title><link href="//other.example/2"/><content type="html">&lt;i&gt;x&lt;/i&gt;</content><published>2025-02-01</published></entry>
</feed>`;

export const JSON_FEED = JSON.stringify({
  version: "https://jsonfeed.org/version/1.1",
  title: "JSON site",
  items: [
    {
      id: 7,
      url: "/seven",
      title: "Seven",
      content_html: "<p>7 &gt; 6</p>",
      authors: [{ name: "Flo" }],
      date_published: "2025-05-05T05:05:05Z",
    },
    { id: "8", content_text: "no title here", author: { name: "Gus" } },
  ],
});

export const rss = (items: string, channel = ""): string =>
  `<rss version="2.0"><channel><title>T</title>${channel}${items}</channel></rss>`;
