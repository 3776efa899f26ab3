package android.graphics;

import org.jetbrains.annotations.Nullable;

/** Pixels in an array, so that code which reads and writes them can run. */
public final class Bitmap {
    public enum Config { ALPHA_8, RGB_565, ARGB_8888, RGBA_F16, HARDWARE, RGBA_1010102 }

    private final int[] colors;
    private final int width;
    private final int height;
    private final Config config;

    private Bitmap(int[] colors, int width, int height, Config config) {
        this.colors = colors.clone();
        this.width = width;
        this.height = height;
        this.config = config;
    }

    public static Bitmap createBitmap(int[] colors, int width, int height, Config config) { return new Bitmap(colors, width, height, config); }
    public @Nullable Bitmap copy(Config config, boolean isMutable) { return new Bitmap(colors, width, height, config); }
    public @Nullable Config getConfig() { return config; }
    public int getWidth() { return width; }
    public int getHeight() { return height; }
    public boolean isRecycled() { return false; }
    public void recycle() {}

    public void getPixels(int[] pixels, int offset, int stride, int x, int y, int width, int height) {
        if (config == Config.HARDWARE) throw new IllegalStateException("unable to getPixels(), pixel access is not supported on Config#HARDWARE bitmaps");
        for (int row = 0; row < height; row++) System.arraycopy(colors, (y + row) * this.width + x, pixels, offset + row * stride, width);
    }
}
