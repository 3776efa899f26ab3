package android.graphics;

import android.content.ContentResolver;
import android.net.Uri;
import android.util.Size;
import java.io.IOException;

public final class ImageDecoder {
    public static final int ALLOCATOR_SOFTWARE = 1;

    public abstract static class Source {}

    public static class ImageInfo {
        public Size getSize() { throw new UnsupportedOperationException(); }
    }

    public interface OnHeaderDecodedListener {
        void onHeaderDecoded(ImageDecoder decoder, ImageInfo info, Source source);
    }

    public static Source createSource(ContentResolver resolver, Uri uri) { throw new UnsupportedOperationException(); }
    public static Bitmap decodeBitmap(Source source, OnHeaderDecodedListener listener) throws IOException { throw new UnsupportedOperationException(); }
    public void setAllocator(int allocator) {}
    public int getAllocator() { return 0; }
    public void setTargetSampleSize(int sampleSize) {}
}
